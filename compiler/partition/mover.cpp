// See mover.hpp.
#include "partition/mover.hpp"

#include <algorithm>
#include <map>

#include "partition/propagate.hpp"

namespace tpu::compiler {
namespace {

const Type kIndex{Elem::kI32, {}};

// Length of what two lists of axes begin with alike.
size_t common(const Axes& a, const Axes& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) {
    ++n;
  }
  return n;
}

// From the core at each place of the order to the core of that number.
PermuteAttrs into_order(const std::vector<int64_t>& order) {
  PermuteAttrs attrs;
  for (size_t d = 0; d < order.size(); ++d) {
    attrs.pairs.push_back({order[d], static_cast<int64_t>(d)});
  }
  return attrs;
}

}  // namespace

Value* Mover::make(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs) {
  return region_->append(kind, std::move(operands), {std::move(type)}, std::move(attrs), op_->loc)
      ->result();
}

Value* Mover::number(int64_t n) {
  return make(Kind::kConstant, {}, kIndex, ConstantAttrs{make_splat_int(kIndex, n)});
}

Value* Mover::zeros(const Type& type) {
  return make(Kind::kConstant, {}, type, ConstantAttrs{make_splat(type, 0)});
}

Value* Mover::index(const Axes& axes) {
  Value* core = make(Kind::kPartitionId, {}, {Elem::kU32, {}});
  core = make(Kind::kConvert, {core}, kIndex);
  const int64_t cores = mesh_.size();
  if (!mesh_.device_ids.empty()) {  // cores stand in another order than in the mesh
    std::vector<int32_t> place(static_cast<size_t>(cores));
    for (int64_t i = 0; i < cores; ++i) {
      place[static_cast<size_t>(mesh_.device_ids[static_cast<size_t>(i)])] =
          static_cast<int32_t>(i);
    }
    const Type table{Elem::kI32, {cores}};
    Value* v = make(Kind::kConstant, {}, table, ConstantAttrs{make_dense_of(table, place)});
    v = make(Kind::kDynamicSlice, {v, core}, {Elem::kI32, {1}}, DimsAttrs{{1}});
    core = make(Kind::kReshape, {v}, kIndex);
  }
  Value* out = nullptr;
  for (size_t i = 0; i < axes.size();) {
    int64_t size = axis_size(mesh_, axes[i]);
    int last = axes[i];
    for (++i; i < axes.size() && axes[i] == last + 1; ++i) {  // neighbours count as one
      size *= axis_size(mesh_, axes[i]);
      last = axes[i];
    }
    int64_t stride = 1;
    for (size_t k = static_cast<size_t>(last) + 1; k < mesh_.axes.size(); ++k) {
      stride *= mesh_.axes[k].size;
    }
    Value* at = stride == 1 ? core : make(Kind::kDivide, {core, number(stride)}, kIndex);
    at = stride * size == cores ? at : make(Kind::kRemainder, {at, number(size)}, kIndex);
    out = out == nullptr
              ? at
              : make(Kind::kAdd, {make(Kind::kMultiply, {out, number(size)}, kIndex), at}, kIndex);
  }
  return out;
}

// Cores that differ along the axes alone, in the order of their index along them.
Groups Mover::groups(const Axes& axes) const {
  std::map<Dims, std::map<int64_t, int64_t>> by_place;
  for (int64_t core = 0; core < mesh_.size(); ++core) {
    Dims place = mesh_.coordinates(core);
    int64_t index = 0;
    for (const int axis : axes) {
      const auto a = static_cast<size_t>(axis);
      index = index * mesh_.axes[a].size + place[a];
      place[a] = 0;
    }
    by_place[place][index] = core;
  }
  Groups out;
  for (const auto& [place, members] : by_place) {
    out.emplace_back();
    for (const auto& [index, core] : members) {
      out.back().push_back(core);
    }
  }
  return out;
}

CollectiveAttrs Mover::collective(const Axes& axes) const {
  CollectiveAttrs attrs;
  attrs.groups = groups(axes);
  return attrs;
}

void Mover::report(Kind kind, const Value* v) {
  const Type& given = v->def->operand_type(0);
  // A sum is sent to owners of its parts and back.
  const int64_t bytes = kind == Kind::kAllReduce       ? 2 * given.bytes()
                        : kind == Kind::kReduceScatter ? given.bytes()
                                                       : v->type.bytes();
  log_[v->def] = {kind, given, bytes, source_name(op_->kind), op_->loc};
}

Value* Mover::reducing(Kind kind, Value* x, Type type, const CollectiveAttrs& attrs, Kind reducer) {
  Value* out = make(kind, {x}, std::move(type), attrs);
  Region* body = out->def->add_region();
  const Type scalar{x->type.elem, {}};
  Value* a = body->add_arg(scalar);
  Value* b = body->add_arg(scalar);
  Op* combine = body->append(reducer, {a, b}, {scalar}, NoAttrs{}, op_->loc);
  body->append(Kind::kReturn, {combine->result()}, {}, NoAttrs{}, op_->loc);
  report(kind, out);
  return out;
}

Value* Mover::all_reduce(Value* x, const Axes& axes, Kind reducer) {
  return reducing(Kind::kAllReduce, x, x->type, collective(axes), reducer);
}

Value* Mover::reduce_scatter(Value* x, const Axes& axes, Kind reducer, size_t dim) {
  CollectiveAttrs attrs = collective(axes);
  attrs.dim = static_cast<int64_t>(dim);
  Type type = x->type;
  type.dims[dim] /= num_parts(mesh_, axes);
  return reducing(Kind::kReduceScatter, x, std::move(type), attrs, reducer);
}

Value* Mover::all_gather(Value* x, const Axes& axes, size_t dim) {
  CollectiveAttrs attrs = collective(axes);
  attrs.dim = static_cast<int64_t>(dim);
  Type type = x->type;
  type.dims[dim] *= num_parts(mesh_, axes);
  Value* out = make(Kind::kAllGather, {x}, std::move(type), attrs);
  report(Kind::kAllGather, out);
  return out;
}

Value* Mover::sum(Value* x, Axes axes, Kind reducer, Spec& spec, const Spec& wanted) {
  for (size_t d = 0; d < spec.size(); ++d) {
    if (!is_prefix(spec[d], wanted[d])) {
      continue;
    }
    const Axes more = tail(wanted[d], spec[d].size());
    if (!more.empty() && holds_all(axes, more)) {
      x = reduce_scatter(x, more, reducer, d);
      append(spec[d], more);
      std::erase_if(axes, [&](int axis) { return holds(more, axis); });
    }
  }
  return axes.empty() ? x : all_reduce(x, axes, reducer);
}

// Where axes cut a dimension behind all that is wanted of it, the part of each core at its place
// among zeros is a term along them; these are taken from `axes`.
Value* Mover::spread_as_terms(Value* x, Spec& now, const Spec& want, Axes& axes) {
  for (size_t d = 0; d < now.size(); ++d) {
    const Axes own = is_prefix(want[d], now[d]) ? tail(now[d], want[d].size()) : Axes{};
    if (!own.empty() && holds_all(axes, own)) {
      Type type = x->type;
      std::vector<Value*> operands{nullptr, x};
      for (size_t i = 0; i < now.size(); ++i) {
        operands.push_back(number(0));
      }
      operands[2 + d] = make(Kind::kMultiply, {index(own), number(type.dims[d])}, kIndex);
      type.dims[d] *= num_parts(mesh_, own);
      operands[0] = zeros(type);
      x = make(Kind::kDynamicUpdateSlice, operands, type);
      now[d] = want[d];
      std::erase_if(axes, [&](int axis) { return holds(own, axis); });
    }
  }
  return x;
}

// Of equal copies that of the first core.
Value* Mover::first_copy(Value* x, const Axes& axes) {
  if (axes.empty()) {
    return x;
  }
  const Type flag{Elem::kI1, {}};
  Value* first = make(Kind::kCompare, {index(axes), number(0)}, flag, CompareAttrs{});
  first = make(Kind::kBroadcastInDim, {first}, {Elem::kI1, x->type.dims}, DimsAttrs{});
  return make(Kind::kSelect, {first, x, zeros(x->type)}, x->type);
}

// Arrays that cost nothing to make where they are wanted (is_free); null for a constant of several
// values, which is cut.
Value* Mover::remade(const Op& def, const Spec& want) {
  const Type type = local_part(mesh_, def.type(), want);
  if (def.kind == Kind::kConstant) {
    const Dense& value = def.as<ConstantAttrs>().value;
    return value.splat ? make(Kind::kConstant, {}, type,
                              ConstantAttrs{Dense{type, type.count() != 1, value.data}})
                       : nullptr;
  }
  if (def.kind == Kind::kBroadcastInDim) {
    return make(def.kind, def.operands, type, def.attrs);
  }
  const auto dim = static_cast<size_t>(def.as<DimAttrs>().dim);
  if (want[dim].empty()) {
    return make(Kind::kIota, {}, type, def.attrs);
  }
  // Numbers of positions are exact in integers alone.
  const Type counts{is_float(type.elem) ? Elem::kI32 : type.elem, type.dims};
  Value* first = make(Kind::kMultiply, {index(want[dim]), number(type.dims[dim])}, kIndex);
  first = counts.elem == Elem::kI32 ? first : make(Kind::kConvert, {first}, {counts.elem, {}});
  first = make(Kind::kBroadcastInDim, {first}, counts, DimsAttrs{});
  Value* out = make(Kind::kAdd, {make(Kind::kIota, {}, counts, def.attrs), first}, counts);
  return counts == type ? out : make(Kind::kConvert, {out}, type);
}

// Each core keeps its part of what it has: every dimension that is cut too little, as long as the
// axes are not in use elsewhere.
Value* Mover::cut(Value* x, Spec& now, const Spec& want) {
  const Axes used = all_axes(now);
  Spec more(now.size());
  for (size_t d = 0; d < now.size(); ++d) {
    if (is_prefix(now[d], want[d])) {
      const Axes rest = tail(want[d], now[d].size());
      const auto end =
          std::find_if(rest.begin(), rest.end(), [&](int axis) { return holds(used, axis); });
      more[d].assign(rest.begin(), end);
    }
  }
  if (is_whole(more)) {
    return x;
  }
  std::vector<Value*> operands{x};
  const Type type = local_part(mesh_, x->type, more);
  for (size_t d = 0; d < now.size(); ++d) {
    append(now[d], more[d]);
    operands.push_back(more[d].empty()
                           ? number(0)
                           : make(Kind::kMultiply, {index(more[d]), number(type.dims[d])}, kIndex));
  }
  return make(Kind::kDynamicSlice, operands, type, DimsAttrs{type.dims});
}

// Axes that go from the end of one dimension to the end of another.
Value* Mover::exchange(Value* x, Spec& now, const Spec& want) {
  for (size_t d = 0; d < now.size(); ++d) {
    for (size_t e = 0; e < now.size(); ++e) {
      for (size_t k = common(now[d], want[d]); d != e && k < now[d].size(); ++k) {
        const Axes moved = tail(now[d], k);
        Axes longer = now[e];
        append(longer, moved);
        if (!is_prefix(longer, want[e])) {
          continue;
        }
        CollectiveAttrs attrs = collective(moved);
        attrs.dim = static_cast<int64_t>(e);
        attrs.concat_dim = static_cast<int64_t>(d);
        attrs.split_count = num_parts(mesh_, moved);
        Type type = x->type;
        type.dims[e] /= attrs.split_count;
        type.dims[d] *= attrs.split_count;
        x = make(Kind::kAllToAll, {x}, std::move(type), attrs);
        report(Kind::kAllToAll, x);
        now[d].resize(k);
        now[e] = std::move(longer);
      }
    }
  }
  return x;
}

// The same axes in another order: each part is on another core as it is.
Value* Mover::permute(Value* x, Spec& now, const Spec& want) {
  const size_t rank = now.size();
  if (now == want || all_axes(now) != all_axes(want)) {
    return x;
  }
  for (size_t d = 0; d < rank; ++d) {
    if (num_parts(mesh_, now[d]) != num_parts(mesh_, want[d])) {
      return x;
    }
  }
  const Sharding from = sharding_of(now), to = sharding_of(want);
  const Axes cutting = all_axes(now);
  const auto copy_of = [&](int64_t core) {  // which of the equal copies
    Dims place = mesh_.coordinates(core);
    for (const int axis : cutting) {
      place[static_cast<size_t>(axis)] = 0;
    }
    return place;
  };
  PermuteAttrs attrs;
  for (int64_t target = 0; target < mesh_.size(); ++target) {
    for (int64_t source = 0; source < mesh_.size(); ++source) {
      if (copy_of(source) == copy_of(target) &&
          from.shard_index(mesh_, source, rank) == to.shard_index(mesh_, target, rank)) {
        attrs.pairs.push_back({source, target});
      }
    }
  }
  now = want;
  return permuted(x, std::move(attrs));
}

Value* Mover::permuted(Value* x, PermuteAttrs attrs) {
  x = make(Kind::kCollectivePermute, {x}, x->type, std::move(attrs));
  report(Kind::kCollectivePermute, x);
  return x;
}

Value* Mover::in_order(Value* x, const std::vector<int64_t>& order) {
  return order.empty() ? x : permuted(x, into_order(order));
}

Value* Mover::from_order(Value* x, const std::vector<int64_t>& order) {
  PermuteAttrs attrs = into_order(order);
  for (auto& [source, target] : attrs.pairs) {
    std::swap(source, target);
  }
  return order.empty() ? x : permuted(x, std::move(attrs));
}

Value* Mover::gather(Value* x, Spec& now, const Spec& want) {
  for (size_t d = 0; d < now.size(); ++d) {
    const size_t keep = common(now[d], want[d]);
    if (keep < now[d].size()) {
      x = all_gather(x, tail(now[d], keep), d);
      now[d].resize(keep);
    }
  }
  return x;
}

bool Mover::lies(const Value* v, const Spec& want) const {
  const auto it = moved_.find(v);
  return specs_.at(v) == want ||
         (it != moved_.end() &&
          std::any_of(it->second.begin(), it->second.end(),
                      [&](const Value* moved) { return specs_.at(moved) == want; }));
}

void Mover::define(Value* v, Spec spec, Axes unreduced) {
  specs_[v] = std::move(spec);
  if (!unreduced.empty()) {
    unreduced_[v] = std::move(unreduced);
  }
}

const Axes& Mover::unreduced(const Value* v) const {
  static const Axes none;
  const auto it = unreduced_.find(v);
  return it == unreduced_.end() ? none : it->second;
}

Value* Mover::reshard(Value* v, const Spec& want, const Axes& terms) {
  Spec now = specs_.at(v);
  if (now == want && unreduced(v) == terms) {
    return v;
  }
  for (Value* moved : moved_[v]) {
    if (specs_.at(moved) == want && unreduced(moved) == terms) {
      return moved;
    }
  }
  Region* const saved = region_;
  region_ = v->def != nullptr ? v->def->parent : v->owner;
  Axes finished, added;
  std::set_difference(unreduced(v).begin(), unreduced(v).end(), terms.begin(), terms.end(),
                      std::back_inserter(finished));
  std::set_difference(terms.begin(), terms.end(), unreduced(v).begin(), unreduced(v).end(),
                      std::back_inserter(added));
  Value* x = is_whole(now) && is_free(v) ? remade(*v->def, want) : nullptr;
  if (x == nullptr) {
    x = finished.empty() ? v : sum(v, finished, Kind::kAdd, now, want);
    x = spread_as_terms(x, now, want, added);
    x = cut(x, now, want);
    x = exchange(x, now, want);
    x = permute(x, now, want);
    x = gather(x, now, want);
    x = cut(x, now, want);
  }
  x = first_copy(x, added);
  region_ = saved;
  define(x, want, terms);
  moved_[v].push_back(x);
  return x;
}

}  // namespace tpu::compiler
