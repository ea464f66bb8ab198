// See replica_tables.hpp.
#include "import/replica_tables.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "ir/attrs.hpp"

namespace tpu::compiler {
namespace {

const Type& index_type() {
  static const Type type = {Elem::kI32, {}};
  return type;
}

}  // namespace

bool ReplicaTables::may_differ(const Op& a, const Op& b) {
  if (a.results.size() != 1 || a.type().count() == 0) {
    return false;
  }
  if (a.kind == Kind::kPad) {
    return a.as<PadAttrs>().interior == b.as<PadAttrs>().interior;
  }
  return a.kind == Kind::kSlice && a.as<SliceAttrs>().stride == b.as<SliceAttrs>().stride;
}

Value* ReplicaTables::append(Kind kind, std::vector<Value*> operands, Type type, Attrs attrs,
                             const LocRef& loc) {
  return body_.append(kind, std::move(operands), {std::move(type)}, std::move(attrs), loc)
      ->result();
}

Value* ReplicaTables::number(int64_t n, const LocRef& loc) {
  return append(Kind::kConstant, {}, index_type(), ConstantAttrs{make_splat_int(index_type(), n)},
                loc);
}

Value* ReplicaTables::replica(const LocRef& loc) {
  if (replica_ == nullptr) {
    Value* const core = append(Kind::kPartitionId, {}, {Elem::kU32, {}}, NoAttrs{}, loc);
    replica_ = append(Kind::kConvert, {core}, index_type(), NoAttrs{}, loc);
  }
  return replica_;
}

Value* ReplicaTables::entry(const Type& type, std::vector<std::byte> bytes, const LocRef& loc) {
  Dims dims{replicas_};
  dims.insert(dims.end(), type.dims.begin(), type.dims.end());
  const Type table_type{type.elem, dims};
  Value* const table = append(Kind::kConstant, {}, table_type,
                              ConstantAttrs{make_dense(table_type, std::move(bytes))}, loc);
  std::vector<Value*> operands{table, replica(loc)};
  for (size_t d = 0; d < type.dims.size(); ++d) {
    operands.push_back(number(0, loc));
  }
  dims[0] = 1;
  Value* const row = append(Kind::kDynamicSlice, operands, {type.elem, dims}, DimsAttrs{dims}, loc);
  return append(Kind::kReshape, {row}, type, NoAttrs{}, loc);
}

Value* ReplicaTables::part(Value* x, const std::vector<Dims>& starts, const Dims& sizes,
                           const LocRef& loc) {
  std::vector<Value*> operands{x};
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int32_t> column;
    for (const Dims& start : starts) {
      column.push_back(static_cast<int32_t>(start[d]));
    }
    const bool equal = std::ranges::adjacent_find(column, std::not_equal_to<>()) == column.end();
    const auto* const bytes = reinterpret_cast<const std::byte*>(column.data());
    operands.push_back(
        equal ? number(column[0], loc)
              : entry(index_type(), {bytes, bytes + column.size() * sizeof(int32_t)}, loc));
  }
  return append(Kind::kDynamicSlice, operands, {x->type.elem, sizes}, DimsAttrs{sizes}, loc);
}

// The most that one pads, of which each takes its part.
Value* ReplicaTables::padded(const std::vector<const Op*>& ops,
                             const std::vector<Value*>& operands) {
  const auto& first = ops[0]->as<PadAttrs>();
  PadAttrs most = first;
  for (const Op* op : ops) {
    for (size_t d = 0; d < most.low.size(); ++d) {
      most.low[d] = std::max(most.low[d], op->as<PadAttrs>().low[d]);
      most.high[d] = std::max(most.high[d], op->as<PadAttrs>().high[d]);
    }
  }
  std::vector<Dims> starts;
  for (const Op* op : ops) {
    Dims& start = starts.emplace_back(most.low);
    for (size_t d = 0; d < start.size(); ++d) {
      start[d] -= op->as<PadAttrs>().low[d];
    }
  }
  Type wide = ops[0]->type();
  for (size_t d = 0; d < wide.dims.size(); ++d) {
    wide.dims[d] += most.low[d] - first.low[d] + most.high[d] - first.high[d];
  }
  const LocRef& loc = ops[0]->loc;
  return part(append(Kind::kPad, operands, wide, most, loc), starts, ops[0]->type().dims, loc);
}

Value* ReplicaTables::sliced(const std::vector<const Op*>& ops, Value* operand) {
  const auto& first = ops[0]->as<SliceAttrs>();
  Dims sizes;
  for (size_t d = 0; d < first.start.size(); ++d) {  // without what a stride skips at the end
    sizes.push_back((ops[0]->type().dims[d] - 1) * first.stride[d] + 1);
  }
  std::vector<Dims> starts;
  for (const Op* op : ops) {
    starts.push_back(op->as<SliceAttrs>().start);
  }
  const LocRef& loc = ops[0]->loc;
  Value* const span = part(operand, starts, sizes, loc);
  if (sizes == ops[0]->type().dims) {
    return span;
  }
  return append(Kind::kSlice, {span}, ops[0]->type(),
                SliceAttrs{Dims(sizes.size(), 0), sizes, first.stride}, loc);
}

}  // namespace tpu::compiler
