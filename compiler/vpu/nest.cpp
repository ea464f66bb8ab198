// Resolves operands to strides, splits loops where a reshape needs it, merges them again.
#include "vpu/nest.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "arith/bf16.hpp"
#include "ir/op_traits.hpp"

namespace tpu::compiler {

namespace {

// The nest must be built again with loop `loop` cut so that its inner part has `inner` iterations.
struct SplitLoop {
  size_t loop;
  int64_t inner;
};
struct DoesNotFit {};

Dims row_major(const std::vector<Loop>& loops) {
  Dims n;
  for (const Loop& l : loops) {
    n.push_back(l.n);
  }
  return row_major_strides(n);
}

// Per dimension of `dims`: index = offset + sum stride * loop index.
std::vector<View> to_dims(const View& view, const Dims& dims, const std::vector<Loop>& loops,
                          const Value* value) {
  const Dims pitch = row_major_strides(dims);
  std::vector<View> out(dims.size());
  int64_t rest = view.offset;
  for (size_t d = 0; d < dims.size(); ++d) {
    out[d].stride.assign(loops.size(), 0);
    out[d].offset = pitch[d] == 0 ? 0 : rest / pitch[d];
    rest -= out[d].offset * pitch[d];
  }
  for (size_t l = 0; l < loops.size(); ++l) {
    const int64_t s = view.stride[l], n = loops[l].n;
    if (s == 0 || n <= 1) {
      continue;
    }
    const int64_t mag = std::abs(s);
    size_t d = 0;
    while (d < dims.size() && (dims[d] <= 1 || pitch[d] > mag)) {
      ++d;
    }
    if (d == dims.size() || mag % pitch[d] != 0) {
      throw NeedsCopy{value};
    }
    const int64_t step = mag / pitch[d];
    if (step * (n - 1) >= dims[d]) {
      const int64_t inner = dims[d] / step;
      if (dims[d] % step != 0 || inner <= 1 || n % inner != 0) {
        throw NeedsCopy{value};
      }
      throw SplitLoop{l, inner};
    }
    out[d].stride[l] = s < 0 ? -step : step;
  }
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t lo = out[d].offset, hi = out[d].offset;
    for (size_t l = 0; l < loops.size(); ++l) {
      const int64_t reach = out[d].stride[l] * (loops[l].n - 1);
      (reach < 0 ? lo : hi) += reach;
    }
    if (lo < 0 || hi >= dims[d]) {
      throw NeedsCopy{value};
    }
  }
  return out;
}

View from_dims(const std::vector<View>& index, const Dims& dims, size_t loops) {
  const Dims pitch = row_major_strides(dims);
  View v;
  v.stride.assign(loops, 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    v.offset += pitch[d] * index[d].offset;
    for (size_t l = 0; l < loops; ++l) {
      v.stride[l] += pitch[d] * index[d].stride[l];
    }
  }
  return v;
}

// One step through a view op: the same element, seen in its operand.
View through(const Op& op, const View& view, const std::vector<Loop>& loops) {
  if (op.kind == Kind::kReshape || op.kind == Kind::kOptimizationBarrier) {
    return view;
  }
  const Dims& from = op.type().dims;
  const Dims& to = op.operand_type(0).dims;
  const std::vector<View> r = to_dims(view, from, loops, op.result());
  std::vector<View> index(to.size());
  View zero;
  zero.stride.assign(loops.size(), 0);
  for (size_t j = 0; j < to.size(); ++j) {
    switch (op.kind) {
      case Kind::kBroadcastInDim:
        index[j] = to[j] == 1 ? zero : r[static_cast<size_t>(op.as<DimsAttrs>().dims[j])];
        break;
      case Kind::kTranspose: {
        const Dims& perm = op.as<DimsAttrs>().dims;
        const auto at = std::find(perm.begin(), perm.end(), static_cast<int64_t>(j));
        index[j] = r[static_cast<size_t>(at - perm.begin())];
        break;
      }
      case Kind::kSlice: {
        const auto& a = op.as<SliceAttrs>();
        index[j] = r[j];
        index[j].offset = a.start[j] + index[j].offset * a.stride[j];
        for (int64_t& s : index[j].stride) {
          s *= a.stride[j];
        }
        break;
      }
      case Kind::kWindow: {
        const auto& a = op.as<WindowViewAttrs>();
        const View &position = r[j], &tap = r[to.size() + j];
        index[j].offset = position.offset * a.stride[j] + tap.offset * a.dilation[j];
        index[j].stride = position.stride;
        for (size_t l = 0; l < loops.size(); ++l) {
          index[j].stride[l] = position.stride[l] * a.stride[j] + tap.stride[l] * a.dilation[j];
        }
        break;
      }
      case Kind::kReverse: {
        const Dims& rev = op.as<DimsAttrs>().dims;
        index[j] = r[j];
        if (std::find(rev.begin(), rev.end(), static_cast<int64_t>(j)) != rev.end()) {
          index[j].offset = to[j] - 1 - index[j].offset;
          for (int64_t& s : index[j].stride) {
            s = -s;
          }
        }
        break;
      }
      default:
        fail_unknown_kind(op, "the index of views");
    }
  }
  return from_dims(index, to, loops.size());
}

bool is_view(Kind kind) { return has_trait(kind, trait::kView); }

class Builder {
 public:
  Builder(const std::vector<const Op*>& ops, const std::vector<Loop>& loops,
          const NestContext& context)
      : ops_(ops), context_(context) {
    nest_.loops = loops;
  }

  Nest run() {
    for (const Op* op : ops_) {
      Node node;
      node.op = op;
      const View all = nest_.identity();
      if (op->kind == Kind::kReduce) {
        nest_.has_reduce = true;
        View none = all;
        none.stride.assign(none.stride.size(), 0);
        node.in = {resolve(op->operands[0], all), resolve(op->operands[1], none)};
      } else if (is_cheap(op->kind)) {
        node.copy = true;
        const Value* made = op->result();
        node.in = {is_view(op->kind) ? resolve(seen(made), through(*op, all, nest_.loops))
                                     : made_here(made, all)};
      } else {
        for (const Value* v : op->operands) {
          View view = all;
          if (v->type.count() == 1) {  // scalar predicate of select, bounds of clamp
            view.stride.assign(view.stride.size(), 0);
          }
          node.in.push_back(resolve(v, view));
        }
      }
      nest_.nodes.push_back(std::move(node));
      inside_[op->result()] = static_cast<int>(nest_.nodes.size()) - 1;
    }
    return std::move(nest_);
  }

  Operand resolve(const Value* v, View view) {
    for (;;) {
      const auto it = inside_.find(v);
      if (it != inside_.end()) {
        const Node& node = nest_.nodes[static_cast<size_t>(it->second)];
        if (node.op->kind == Kind::kReduce || !same_elements(view)) {
          throw DoesNotFit{};
        }
        return {Operand::Kind::kNode, it->second, 0};
      }
      if (v->def == nullptr || !is_cheap(v->def->kind) || context_.is_copied(v)) {
        return access(v, view);
      }
      if (!is_view(v->def->kind)) {
        return made_here(v, view);
      }
      view = through(*v->def, view, nest_.loops);
      v = seen(v);
    }
  }

 private:
  bool same_elements(const View& view) const {
    const View all = nest_.identity();
    if (view.offset != 0) {
      return false;
    }
    for (size_t l = 0; l < nest_.loops.size(); ++l) {
      if (nest_.loops[l].n > 1 && view.stride[l] != all.stride[l]) {
        return false;
      }
    }
    return true;
  }

  // What a view looks at.
  static const Value* seen(const Value* view) {
    return view->def->operands[static_cast<size_t>(view->index)];
  }

  // Constants, iotas and core numbers.
  Operand made_here(const Value* v, const View& view) {
    const Op& op = *v->def;
    if (op.kind == Kind::kConstant) {
      const Dense& c = op.as<ConstantAttrs>().value;
      if (c.splat || c.type.count() == 1) {
        return {Operand::Kind::kImmediate, 0, register_bits(c)};
      }
      return access(v, view);
    }
    if (op.kind == Kind::kIota) {
      const auto dim = static_cast<size_t>(op.as<DimAttrs>().dim);
      nest_.indexes.push_back(to_dims(view, op.type().dims, nest_.loops, v)[dim]);
      return {Operand::Kind::kIndex, static_cast<int>(nest_.indexes.size()) - 1, 0};
    }
    return {Operand::Kind::kPartition, 0, 0};
  }

  Operand access(const Value* v, const View& view) {
    for (size_t i = 0; i < nest_.accesses.size(); ++i) {
      if (nest_.accesses[i].value == v && nest_.accesses[i].view == view) {
        return {Operand::Kind::kAccess, static_cast<int>(i), 0};
      }
    }
    nest_.accesses.push_back({v, view});
    return {Operand::Kind::kAccess, static_cast<int>(nest_.accesses.size()) - 1, 0};
  }

  const std::vector<const Op*>& ops_;
  const NestContext& context_;
  Nest nest_;
  std::map<const Value*, int> inside_;
};

bool mergeable(const Nest& nest, size_t outer) {
  const size_t inner = outer + 1;
  const auto fits = [&](const View& v) {
    return v.stride[outer] == nest.loops[inner].n * v.stride[inner];
  };
  return nest.loops[outer].reduced == nest.loops[inner].reduced &&
         std::all_of(nest.accesses.begin(), nest.accesses.end(),
                     [&](const NestAccess& a) { return fits(a.view); }) &&
         std::all_of(nest.indexes.begin(), nest.indexes.end(), fits);
}

template <typename Fn>
void for_views(Nest& nest, Fn&& fn) {
  for (NestAccess& a : nest.accesses) {
    fn(a.view);
  }
  for (View& v : nest.indexes) {
    fn(v);
  }
}

void erase_loop(Nest& nest, size_t loop) {
  const auto at = static_cast<ptrdiff_t>(loop);
  nest.loops.erase(nest.loops.begin() + at);
  for_views(nest, [&](View& v) { v.stride.erase(v.stride.begin() + at); });
}

// Sums over one innermost loop: along the lanes, whatever loops the rows of a block come from. So
// the kept loops may be several, as where a mask is the same for all heads. Blocks must be full of
// rows, or what is saved in HBM costs more on the vector unit.
bool sums_along_lanes(const Nest& nest) {
  constexpr size_t kCommandLoops = 4;
  constexpr int64_t kRows = 8;  // of a block
  return nest.loops.size() <= kCommandLoops && nest.loops.back().reduced &&
         nest.loops[nest.loops.size() - 2].n % kRows == 0 &&
         std::none_of(nest.loops.begin(), nest.loops.end() - 1,
                      [](const Loop& l) { return l.reduced; });
}

// Drops loops of one iteration and merges what may be merged. With a reduce, every two neighbours
// of the same role must merge, if the order of the sum depends on it; reduced ones never do where
// they stay apart.
void merge(Nest& nest, bool apart) {
  for (size_t l = nest.loops.size(); l-- > 0;) {
    if (nest.loops[l].n == 1) {
      erase_loop(nest, l);
    }
  }
  bool all = true;
  for (size_t l = nest.loops.size(); l-- > 1;) {
    if (apart && nest.loops[l].reduced && nest.loops[l - 1].reduced) {
      continue;
    }
    if (mergeable(nest, l - 1)) {
      nest.loops[l].n *= nest.loops[l - 1].n;
      erase_loop(nest, l - 1);
    } else if (nest.loops[l].reduced == nest.loops[l - 1].reduced) {
      all = false;
    }
  }
  if (nest.has_reduce && !all && !sums_along_lanes(nest)) {
    throw DoesNotFit{};
  }
}

}  // namespace

int64_t Nest::elements() const {
  int64_t n = 1;
  for (const Loop& l : loops) {
    n *= l.n;
  }
  return n;
}

View Nest::identity() const { return {0, row_major(loops)}; }

Dims Nest::reduced_strides() const {
  Dims out(loops.size(), 0);
  int64_t pitch = 1;
  for (size_t l = loops.size(); l-- > 0;) {
    if (!loops[l].reduced) {
      out[l] = pitch;
      pitch *= loops[l].n;
    }
  }
  return out;
}

bool is_cheap(Kind kind) {
  return is_view(kind) || kind == Kind::kConstant || kind == Kind::kIota ||
         kind == Kind::kPartitionId || kind == Kind::kReplicaId;
}

std::optional<Nest> build_nest(const std::vector<const Op*>& ops, const Dims& domain,
                               const NestContext& context) {
  std::vector<Loop> loops;
  for (const int64_t n : domain) {
    loops.push_back({n, false});
  }
  bool seen = false;  // a reduce: the others must have the same reduced dims
  bool apart = false;
  for (const Op* op : ops) {
    if (op->kind == Kind::kReduce) {
      const auto& [dims, stay_apart] = op->as<DimsAttrs>();
      if (op->operand_type(0).dims != domain || (seen && stay_apart != apart)) {
        return std::nullopt;
      }
      apart = stay_apart;
      std::vector<Loop> mine = loops;
      for (Loop& l : mine) {
        l.reduced = false;
      }
      for (const int64_t d : dims) {
        mine[static_cast<size_t>(d)].reduced = true;
      }
      for (size_t l = 0; l < loops.size(); ++l) {
        if (seen && mine[l].reduced != loops[l].reduced && loops[l].n != 1) {
          return std::nullopt;
        }
      }
      loops = mine;
      seen = true;
    }
  }
  for (;;) {
    try {
      Nest nest = Builder(ops, loops, context).run();
      merge(nest, apart);
      return nest;
    } catch (const SplitLoop& s) {
      Loop outer = loops[s.loop], inner = loops[s.loop];
      outer.n /= s.inner;
      inner.n = s.inner;
      loops[s.loop] = outer;
      loops.insert(loops.begin() + static_cast<ptrdiff_t>(s.loop) + 1, inner);
    } catch (const DoesNotFit&) {
      return std::nullopt;
    }
  }
}

NestAccess resolve_view(const Value* value, const NestContext& context) {
  std::vector<Loop> loops;
  for (const int64_t n : value->type.dims) {
    loops.push_back({n, false});
  }
  // The builder works on an empty list of ops; only its resolver is needed.
  static const std::vector<const Op*> kNoOps;
  Builder builder(kNoOps, loops, context);
  Operand operand;
  Nest probe;
  probe.loops = loops;
  try {
    operand = builder.resolve(value, probe.identity());
  } catch (const SplitLoop&) {
    throw NeedsCopy{value};
  }
  if (operand.kind != Operand::Kind::kAccess) {
    throw NeedsCopy{value};
  }
  Nest nest = builder.run();
  return nest.accesses.at(0);
}

const Value* view_root(const Value* value, const NestContext& context) {
  while (value->def != nullptr && is_view(value->def->kind) && !context.is_copied(value)) {
    value = value->def->operands[static_cast<size_t>(value->index)];
  }
  return value;
}

uint32_t register_bits(const Dense& constant) {
  switch (constant.type.elem) {
    case Elem::kF32: {
      uint32_t bits = 0;
      std::memcpy(&bits, constant.element(0), sizeof bits);
      return bits;
    }
    case Elem::kBf16: {
      uint16_t bits = 0;
      std::memcpy(&bits, constant.element(0), sizeof bits);
      return spec::bf16_to_f32_bits(bits);
    }
    default:
      return static_cast<uint32_t>(constant.as_int(0));
  }
}

}  // namespace tpu::compiler
