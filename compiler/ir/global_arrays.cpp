// Global arrays and the arrays of cores that the interpreter takes and gives: boxes by the
// shardings of main, 64-bit integers as two arrays of words where the graph has them so (WordPart).
#include <cstring>

#include "ir/interpreter.hpp"

namespace tpu::compiler {

namespace {

// Calls fn(offset in global, offset in local, bytes of a run) for each innermost run of a shard.
void for_each_run(const Type& global, const Type& local, const Dims& shard,
                  const std::function<void(size_t, size_t, size_t)>& fn) {
  const auto size = static_cast<size_t>(elem_bytes(global.elem));
  const Dims strides = row_major_strides(global.dims);
  const size_t rank = local.dims.size();
  const int64_t run = rank == 0 ? 1 : local.dims[rank - 1];
  const int64_t count = local.count();
  Dims at(rank, 0);
  for (int64_t i = 0; i < count; i += run) {
    int64_t to = 0;
    for (size_t d = 0; d < rank; ++d) {
      to += (shard[d] * local.dims[d] + at[d]) * strides[d];
    }
    fn(static_cast<size_t>(to) * size, static_cast<size_t>(i) * size,
       static_cast<size_t>(run) * size);
    for (size_t d = rank - (rank > 0 ? 1 : 0); d-- > 0;) {
      if (++at[d] < local.dims[d]) {
        break;
      }
      at[d] = 0;
    }
  }
}

// What one core has of an array.
Tensor part_of(const Tensor& global, const Type& local, const Dims& shard) {
  Tensor part = make_tensor(local);
  for_each_run(global.type, local, shard, [&](size_t from, size_t to, size_t n) {
    std::memcpy(part.data.data() + to, global.data.data() + from, n);
  });
  return part;
}

// The values of main that stand for an array: the array, or its low and its high words.
std::vector<Tensor> values_of(Tensor array, WordPart first) {
  std::vector<Tensor> out;
  if (first == WordPart::kWhole) {
    out.push_back(std::move(array));
    return out;
  }
  const Type word{Elem::kU32, array.type.dims};
  for (const size_t offset : {size_t{0}, size_t{4}}) {
    Tensor& t = out.emplace_back(make_tensor(word));
    for (size_t i = 0; i * 4 < t.data.size(); ++i) {
      std::memcpy(t.data.data() + i * 4, array.data.data() + i * 8 + offset, 4);
    }
  }
  return out;
}

// The other way round: value `i` of a core, with the words behind it.
Tensor array_of(const std::vector<Tensor>& values, size_t i, const ResultInfo& info) {
  if (info.part == WordPart::kWhole) {
    return values.at(i);
  }
  Tensor array = make_tensor({info.global.elem, values.at(i).type.dims});
  for (const size_t word : {size_t{0}, size_t{1}}) {
    const Tensor& t = values.at(i + word);
    for (size_t e = 0; e * 4 < t.data.size(); ++e) {
      std::memcpy(array.data.data() + e * 8 + word * 4, t.data.data() + e * 4, 4);
    }
  }
  return array;
}

}  // namespace

std::vector<std::vector<Tensor>> split_arguments(const Module& module,
                                                 const std::vector<Tensor>& global) {
  const Function& f = *module.main;
  const size_t count = f.args.empty() ? 0 : parameter_number(f.args, f.args.size() - 1) + 1;
  if (global.size() != count) {
    throw Error("the program takes " + std::to_string(count) + " arguments, found " +
                std::to_string(global.size()));
  }
  std::vector<std::vector<Tensor>> out(static_cast<size_t>(module.num_cores));
  for (size_t c = 0; c < out.size(); ++c) {
    size_t number = 0;
    for (size_t i = 0; i < f.args.size(); ++i) {
      const ArgInfo& info = f.args[i];
      if (info.part == WordPart::kHigh) {
        continue;
      }
      const Tensor& whole = global[number];
      if (whole.type != info.global) {
        throw Error("argument " + std::to_string(number) + " must be " + to_string(info.global) +
                    ", not " + to_string(whole.type));
      }
      ++number;
      const Type local{info.global.elem, f.body.args[i]->type.dims};
      const auto core = static_cast<int64_t>(c);
      const Dims shard = info.sharding.shard_index(module.mesh, core, local.dims.size());
      Tensor part = info.sharding.term_index(module.mesh, core) == 0
                        ? part_of(whole, local, shard)
                        : make_tensor(local);  // the other terms of a sum are zero
      for (Tensor& value : values_of(std::move(part), info.part)) {
        out[c].push_back(std::move(value));
      }
    }
  }
  return out;
}

std::vector<Tensor> join_results(const Module& module,
                                 const std::vector<std::vector<Tensor>>& per_core) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < module.main->results.size(); ++i) {
    const ResultInfo& info = module.main->results[i];
    if (info.part == WordPart::kHigh) {
      continue;
    }
    const std::string name = "result " + std::to_string(out.size());
    if (!info.sharding.unreduced.empty()) {
      throw Error(name +
                  " is unreduced: each core has a partial sum; expected an array or its shards");
    }
    Tensor global = make_tensor(info.global);
    std::vector<bool> written(global.data.size());
    for (size_t c = 0; c < per_core.size(); ++c) {
      const Tensor local = array_of(per_core[c], i, info);
      const Dims shard =
          info.sharding.shard_index(module.mesh, static_cast<int64_t>(c), local.type.dims.size());
      for_each_run(info.global, local.type, shard, [&](size_t to, size_t from, size_t n) {
        if (n != 0 && written[to] &&
            std::memcmp(global.data.data() + to, local.data.data() + from, n) != 0) {
          throw Error(name + " is replicated, but core " + std::to_string(c) +
                      " has a different value than a core with a lower number");
        }
        std::memcpy(global.data.data() + to, local.data.data() + from, n);
        if (n != 0) {
          written[to] = true;
        }
      });
    }
    out.push_back(std::move(global));
  }
  return out;
}

}  // namespace tpu::compiler
