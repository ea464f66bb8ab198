// See indexed.hpp.
#include "partition/indexed.hpp"

#include <algorithm>

namespace tpu::compiler {
namespace {

const Dims& table_dims(const Op& op) {
  return op.kind == Kind::kGather ? op.as<GatherAttrs>().start_index_map
                                  : op.as<ScatterAttrs>().scatter_dims_to_operand_dims;
}

int64_t vector_dim(const Op& op) {
  return op.kind == Kind::kGather ? op.as<GatherAttrs>().index_vector_dim
                                  : op.as<ScatterAttrs>().index_vector_dim;
}

}  // namespace

TablePart::TablePart(Mover& mover, const Mesh& mesh, const Op& op, const FactorRule& rule,
                     const std::vector<Axes>& axes, Value* indices)
    : mover_(mover),
      op_(op),
      table_dims_(table_dims(op)),
      vector_dim_(static_cast<size_t>(vector_dim(op))),
      given_(indices),
      indices_(indices) {
  std::vector<Axes> cuts(table_dims_.size());
  for (const IndexedFactor& f : rule.indexed) {
    cuts[static_cast<size_t>(f.entry)] = axes[static_cast<size_t>(f.factor)];
  }
  if (is_whole(cuts)) {
    return;
  }
  std::vector<Value*> entries;
  for (size_t k = 0; k < cuts.size(); ++k) {
    const int64_t size = op.operand_type(0).dims[static_cast<size_t>(table_dims_[k])];
    entries.push_back(in_part(k, cuts[k], size / num_parts(mesh, cuts[k])));
  }
  indices_ = entries[0];
  if (entries.size() > 1) {
    const Type type{Elem::kI32, given_->type.dims};
    indices_ =
        mover.make(Kind::kConcatenate, entries, type, DimAttrs{static_cast<int64_t>(vector_dim_)});
  }
}

// One entry of all index vectors, as i32 or wider.
Value* TablePart::entry(size_t number) const {
  Value* v = given_;
  Type type = v->type;
  if (table_dims_.size() > 1) {
    SliceAttrs a{Dims(type.dims.size(), 0), type.dims, Dims(type.dims.size(), 1)};
    a.start[vector_dim_] = static_cast<int64_t>(number);
    a.limit[vector_dim_] = a.start[vector_dim_] + 1;
    type.dims[vector_dim_] = 1;
    v = mover_.make(Kind::kSlice, {v}, type, a);
  }
  if (elem_bytes(type.elem) < 4) {
    type.elem = Elem::kI32;
    v = mover_.make(Kind::kConvert, {v}, type);
  }
  return v;
}

// Bounded first: a gather moves windows into the table; what a scatter leaves out must not come
// into bounds when the index is made narrower.
Value* TablePart::in_part(size_t number, const Axes& axes, int64_t part_size) {
  const auto d = static_cast<size_t>(table_dims_[number]);
  const int64_t size = op_.operand_type(0).dims[d];
  Value* v = entry(number);
  const Type one{v->type.elem, {}};
  const bool gathers = op_.kind == Kind::kGather;
  const int64_t last = gathers ? size - op_.as<GatherAttrs>().slice_sizes[d] : size;
  const auto bound = [&](int64_t n) {
    return mover_.make(Kind::kConstant, {}, one, ConstantAttrs{make_splat_int(one, n)});
  };
  Value* first = bound(gathers || is_unsigned(one.elem) ? 0 : -1);
  v = mover_.make(Kind::kClamp, {first, v, bound(last)}, v->type);
  const Type type{Elem::kI32, v->type.dims};
  v = one.elem == Elem::kI32 ? v : mover_.make(Kind::kConvert, {v}, type);
  if (axes.empty()) {
    return v;
  }
  const auto everywhere = [&](Value* scalar) {
    return mover_.make(Kind::kBroadcastInDim, {scalar}, type, DimsAttrs{});
  };
  Value* size_of_part = mover_.number(part_size);
  Value* begin =
      mover_.make(Kind::kMultiply, {mover_.index(axes), size_of_part}, size_of_part->type);
  v = mover_.make(Kind::kSubtract, {v, everywhere(begin)}, type);
  if (gathers) {
    const Type flags{Elem::kI1, type.dims};
    Value* from = mover_.make(Kind::kCompare, {v, everywhere(mover_.number(0))}, flags,
                              CompareAttrs{CompareDirection::kGe, CompareType::kSigned});
    Value* to = mover_.make(Kind::kCompare, {v, everywhere(size_of_part)}, flags,
                            CompareAttrs{CompareDirection::kLt, CompareType::kSigned});
    inside_.push_back(mover_.make(Kind::kAnd, {from, to}, flags));
  }
  return v;
}

Value* TablePart::own(Value* gathered) {
  if (inside_.empty()) {
    return gathered;
  }
  Value* inside = inside_[0];
  for (size_t i = 1; i < inside_.size(); ++i) {
    inside = mover_.make(Kind::kAnd, {inside, inside_[i]}, inside->type);
  }
  Type records = inside->type;
  if (vector_dim_ < records.dims.size()) {
    records.dims.erase(records.dims.begin() + static_cast<ptrdiff_t>(vector_dim_));
    inside = mover_.make(Kind::kReshape, {inside}, records);
  }
  const Dims& windows = op_.as<GatherAttrs>().offset_dims;
  DimsAttrs record_dims;
  for (int64_t d = 0; d < gathered->type.rank(); ++d) {
    if (std::find(windows.begin(), windows.end(), d) == windows.end()) {
      record_dims.dims.push_back(d);
    }
  }
  inside = mover_.make(Kind::kBroadcastInDim, {inside}, {Elem::kI1, gathered->type.dims},
                       std::move(record_dims));
  Value* nothing = mover_.make(Kind::kConstant, {}, gathered->type,
                               ConstantAttrs{identity_of(Kind::kAdd, gathered->type)});
  return mover_.make(Kind::kSelect, {inside, gathered, nothing}, gathered->type);
}

}  // namespace tpu::compiler
