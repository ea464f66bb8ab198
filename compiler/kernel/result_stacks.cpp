#include "kernel/result_stacks.hpp"

#include <algorithm>
#include <optional>

#include "ir/control.hpp"
#include "ir/counter_values.hpp"
#include "kernel/overwritten.hpp"

namespace tpu::compiler {

namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

// The only user of the value, which uses it once; null: there are none or others.
const Op* only_user(const Value* v, const Uses& uses) {
  const auto users = uses.find(v);
  return users == uses.end() || users->second.size() != 1 ? nullptr : users->second[0];
}

// The layer of a stack that the slice is; nothing: it is anything else.
std::optional<int64_t> layer_of(const Op& slice) {
  if (slice.kind != Kind::kSlice) {
    return std::nullopt;
  }
  const auto& a = slice.as<SliceAttrs>();
  const Dims& all = slice.operand_type(0).dims;
  for (size_t d = 0; d < all.size(); ++d) {
    if (a.stride[d] != 1 || (d > 0 && (a.start[d] != 0 || a.limit[d] != all[d]))) {
      return std::nullopt;
    }
  }
  return all.empty() || a.limit[0] != a.start[0] + 1 ? std::nullopt : std::optional(a.start[0]);
}

// By layer of the stack: the result of main that it is. Nothing if a layer is anything else, too.
std::vector<size_t> results_of(const Function& main, const Value* stack, const Uses& uses) {
  const Op* ret = main.body.terminator();
  const auto users = uses.find(stack);
  std::vector<size_t> results(static_cast<size_t>(stack->type.dims[0]), kNone);
  if (users == uses.end() || users->second.size() != results.size()) {
    return {};
  }
  for (const Op* slice : users->second) {
    const std::optional<int64_t> layer = layer_of(*slice);
    if (!layer || results[static_cast<size_t>(*layer)] != kNone) {
      return {};
    }
    const Value* part = slice->result();
    for (const Op* user = only_user(part, uses); user != ret; user = only_user(part, uses)) {
      if (user == nullptr || user->kind != Kind::kReshape) {
        return {};
      }
      part = user->result();
    }
    const auto at = std::ranges::find(ret->operands, part) - ret->operands.begin();
    results[static_cast<size_t>(*layer)] = static_cast<size_t>(at);
  }
  return results;
}

// The layer that the update writes in each iteration, all of it, and all layers one after the
// other; nothing: it does anything else.
std::vector<int64_t> layers_of(const Op& update, const Op& loop, const CountedLoop& counted) {
  const Dims &all = update.type().dims, &part = update.operand_type(1).dims;
  std::vector<int64_t> layers;
  for (size_t d = 0; d < all.size(); ++d) {
    const auto starts = values_in_loop(update.operands[2 + d], loop, counted);
    if (!starts || part[d] != (d == 0 ? 1 : all[d]) ||
        (d > 0 && std::ranges::any_of(*starts, [](int64_t start) { return start != 0; }))) {
      return {};
    }
    layers = d == 0 ? *starts : layers;
  }
  std::vector<int64_t> sorted = layers;
  std::ranges::sort(sorted);
  for (size_t t = 0; t < sorted.size(); ++t) {
    if (sorted[t] != static_cast<int64_t>(t)) {
      return {};
    }
  }
  return sorted.size() == static_cast<size_t>(all[0]) ? layers : std::vector<int64_t>{};
}

}  // namespace

ResultStacks::ResultStacks(const Module& module, const SlotNumbers& slots, SlotTableBudget& budget,
                           const std::set<const Op*>& without) {
  const Function& main = *module.main;
  const Uses uses = compute_uses(main.body);
  for (const auto& op : main.body.ops) {
    const auto counted = counted_loop(*op);
    if (without.contains(op.get()) || !counted || counted->first != 0 || counted->step != 1 ||
        counted->trips == 0 || uses.contains(op->result(counted->index))) {
      continue;
    }
    for (size_t i = 0; i < op->results.size(); ++i) {
      const Value* stack = op->result(i);
      if (i == counted->index || stack->type.rank() == 0 || stack->type.count() == 0 ||
          !is_overwritten(*op, *counted, i)) {
        continue;
      }
      const Op& update = *op->regions[1]->terminator()->operands[i]->def;
      const std::vector<int64_t> layers = layers_of(update, *op, *counted);
      const std::vector<size_t> by_layer =
          layers.empty() ? std::vector<size_t>{} : results_of(main, stack, uses);
      std::vector<size_t> results;
      std::vector<int> numbers;
      for (size_t t = 0; t < layers.size() && !by_layer.empty(); ++t) {
        results.push_back(by_layer[static_cast<size_t>(layers[t])]);
        numbers.push_back(slots.results[results.back()]);
      }
      if (results.empty() || std::ranges::find(numbers, -1) != numbers.end() ||
          !budget.take(*op, {numbers})) {
        continue;
      }
      written_.insert(results.begin(), results.end());
      stacks_.emplace(op.get(), i);
      results_[&update] = std::move(results);
    }
  }
}

const std::vector<size_t>* ResultStacks::results(const Op& update) const {
  const auto found = results_.find(&update);
  return found == results_.end() ? nullptr : &found->second;
}

namespace {

// The iterations of `loop` in which it writes over each argument.
std::map<const Value*, size_t> overwritten_arguments(const Function& main, const Kernel& loop) {
  std::map<size_t, const Value*> replaced;  // by result
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (const int r = main.args[i].alias_result; r >= 0) {
      replaced[static_cast<size_t>(r)] = main.body.args[i].get();
    }
  }
  std::map<const Value*, size_t> found;  // for look-up only
  for (const Kernel& k : loop.control().regions[1]->kernels) {
    for (size_t t = 0; t < k.move().results.size(); ++t) {
      if (const auto at = replaced.find(k.move().results[t]); at != replaced.end()) {
        found[at->second] = t;
      }
    }
  }
  return found;
}

// `k`, in the loop, reads the arguments before the iteration that writes over them ends.
bool reads_in_time(const Kernel& k, const std::map<const Value*, size_t>& overwritten) {
  for (const Value* v : k.reads) {
    const auto at = overwritten.find(v);
    if (at == overwritten.end()) {
      continue;
    }
    const std::vector<const Value*>& taken = k.move().arguments;
    if (taken.empty()) {
      return false;
    }
    for (size_t t = 0; t < taken.size(); ++t) {
      if (taken[t] == v && t > at->second) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::set<const Op*> loops_without_results(const Function& main, const KernelProgram& program) {
  std::set<const Op*> found;
  for (const Kernel& loop : program.kernels) {
    if (loop.kind != KernelClass::kWhile || !loop.control().counted) {
      continue;
    }
    const std::map<const Value*, size_t> overwritten = overwritten_arguments(main, loop);
    bool fits = true;
    for_each_kernel(program, [&](const Kernel& k) {
      if (k.order > loop.end) {
        fits = fits && std::ranges::none_of(
                           k.reads, [&](const Value* v) { return overwritten.contains(v); });
      } else if (k.order > loop.order) {
        fits = fits && reads_in_time(k, overwritten);
      }
    });
    if (!fits) {
      found.insert(loop.ops[0]);
    }
  }
  return found;
}

}  // namespace tpu::compiler
