// jax.shard_map (sdy.manual_computation) and sharding constraints: kept as ops of the global graph,
// for the pass `partition`. See import_parts.hpp.
#include <algorithm>

#include "import/import_parts.hpp"

namespace tpu::compiler::frontend {

using bytecode::Dialect;

void ShardyOps::convert(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  if (op.name == "return") {
    to.append(Kind::kReturn, operands(reader), {}, NoAttrs{}, reader.loc());
  } else if (op.name == "manual_computation") {
    manual_computation(reader, to);
  } else if (op.name == "sharding_constraint") {
    sharding_constraint(reader, Kind::kShardingConstraint, to);
  } else if (op.name == "reshard") {
    sharding_constraint(reader, Kind::kReshard, to);
  } else if (op.name == "sharding_group") {
    sharding_group(reader, to);
  } else {
    reader.fail("this op is not supported");
  }
}

void ShardyOps::sharding_constraint(const OpReader& reader, Kind kind, Region& to) {
  const RawOp& op = reader.raw();
  if (op.operands.size() != 1 || op.results.size() != 1) {
    reader.fail("wrong number of operands or results: expected 1 and 1");
  }
  if (cores_.partitions == 1) {  // one core has the whole of every array
    identity(reader);
    return;
  }
  const Type type = operand(reader, 0)->type;
  define_results(
      reader, *to.append(kind, operands(reader), {type},
                         shardings_.tensor(reader, reader.property("sharding"), type.dims.size()),
                         reader.loc()));
}

// The op has no result: who reads the value further on reads that of a constraint which leaves all
// open. A group names a value in the region that makes it.
void ShardyOps::sharding_group(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  if (op.operands.size() != 1 || !op.results.empty()) {
    reader.fail("wrong number of operands or results: expected 1 and 0");
  }
  const int64_t group = reader.integer("group_id");
  Value* const value = operand(reader, 0);
  const Dims dims = value->type.dims;
  check_group(reader, group, dims);
  const Region* const maker = value->def != nullptr ? value->def->parent : value->owner;
  if (cores_.partitions == 1 || dims.empty() || maker != &to) {
    return;
  }
  ShardingAttrs attrs{.sharding = {}, .open = std::vector<bool>(dims.size(), true), .group = group};
  Value* const alike = to.append(Kind::kShardingConstraint, operands(reader), {value->type},
                                 std::move(attrs), reader.loc())
                           ->result();
  std::replace(values_.begin(), values_.end(), value, alike);  // it may have come through casts
}

void ShardyOps::manual_computation(const OpReader& reader, Region& to) {
  const RawOp& op = reader.raw();
  const RawRegion& body = body_of(op, reader);
  const auto in = shardings_.per_value(reader, "in_shardings");
  const auto out = shardings_.per_value(reader, "out_shardings");
  if (in.size() != op.operands.size() || body.args.size() != op.operands.size() ||
      out.size() != op.results.size() || op.result_types.size() != op.results.size()) {
    reader.fail("the numbers of operands, results and shardings differ");
  }
  ManualAttrs attrs;
  std::vector<Type> types;
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t rank = operand(reader, i)->type.dims.size();
    attrs.in.push_back(shardings_.tensor(reader, in[i], rank));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    types.push_back(reader.type(op.result_types[i]));
    attrs.out.push_back(shardings_.tensor(reader, out[i], types[i].dims.size()));
  }
  if (!in.empty() || !out.empty()) {
    attrs.manual_axes = shardings_.manual_axes(reader, in.empty() ? out[0] : in[0]);
  }
  Op* computation = to.append(Kind::kManualComputation, operands(reader), std::move(types),
                              std::move(attrs), reader.loc());
  Region* inner = computation->add_region();
  for (const auto& arg : body.args) {
    values_[arg.value] = inner->add_arg(reader.type(arg.type));
  }
  const LocRef saved = outer_loc_;
  outer_loc_ = reader.loc();
  regions_.convert_ops(body, *inner);
  outer_loc_ = saved;
  if (inner->terminator()->operands.size() != op.results.size()) {
    reader.fail("the body returns another number of values");
  }
  define_results(reader, *computation);
}

}  // namespace tpu::compiler::frontend
