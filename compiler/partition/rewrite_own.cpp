// Ops that a framework cuts over the cores itself (jax.experimental.custom_partitioning). It is
// told how the arrays lie, and answers how it wants them and with the program of one core, which
// stands here in place of the op. See rewrite.hpp.
#include <utility>

#include "ir/error_kinds.hpp"
#include "partition/rewrite.hpp"

namespace tpu::compiler {
namespace {

[[noreturn]] void fail(const Op& op, const std::string& message) {
  throw Contradiction("custom_partitioning: " + message, source_name(op.kind), op.loc);
}

Sharding wanted_by(const Op& op, const Mesh& mesh, const TileList& list, const Type& type) {
  try {
    return sharding_of_tiles(mesh, list, type.dims.size());
  } catch (const Error& e) {
    fail(op, e.message());
  }
}

void check_counts(const Op& op, const PartitionedOp& part) {
  const auto& a = op.as<CustomCallAttrs>();
  if (part.operand_tiles.size() != a.in.size() || part.result_tiles.size() != a.out.size() ||
      part.program->body.args.size() != op.operands.size() ||
      part.program->body.terminator()->operands.size() != op.results.size()) {
    fail(op, "what `partition` gives has another number of operands or results than the function");
  }
}

void check_type(const Op& op, const Type& have, const Type& want, const std::string& what) {
  if (have != want) {
    fail(op, what + " of the function that `partition` gives is " + to_string(have) +
                 ", by its sharding it must be " + to_string(want));
  }
}

// Which array of the program each operand (result) is, or is a part of.
std::vector<size_t> array_numbers(const std::vector<Type>& arrays) {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < arrays.size(); ++i) {
    numbers.insert(numbers.end(), has_parts(arrays[i].elem) ? 2 : 1, i);
  }
  return numbers;
}

PartitionedOp answer(const Op& op, const OwnPartitioner& partitioner,
                     const PartitionRequest& request) {
  try {
    PartitionedOp part = partitioner(request);
    check_counts(op, part);
    return part;
  } catch (const Error& e) {
    if (e.op().empty()) {
      fail(op, e.message());
    }
    throw;
  }
}

}  // namespace

void Rewrite::own(const Op& op) {
  const auto& a = op.as<CustomCallAttrs>();
  if (!module_.partitioner) {
    fail(op, "its partition function runs in Python only: run the program by JAX on the plugin");
  }
  PartitionRequest request{a.target, a.backend_config, a.in, a.out, {}, {}};
  request.operand_tiles.resize(a.in.size());
  request.result_tiles.resize(a.out.size());
  const std::vector<size_t> in = array_numbers(a.in), out = array_numbers(a.out);
  std::vector<Value*> operands;
  for (size_t i = 0; i < in.size(); ++i) {
    Value* v = now(op.operands[i]);
    // A sum is added up. Parts of axes have no name in the program's mesh.
    operands.push_back(mover_.reshard(v, whole_axes(mesh_, mover_.spec(v))));
    request.operand_tiles[in[i]] =
        tiles_of(mesh_, sharding_of(mover_.spec(operands[i])), a.in[in[i]].dims.size());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    request.result_tiles[out[i]] =
        tiles_of(mesh_, sharding_of(whole_axes(mesh_, placements_.of(op.result(i)))),
                 a.out[out[i]].dims.size());
  }
  const PartitionedOp part = answer(op, module_.partitioner, request);
  ValueMap map;
  for (size_t i = 0; i < in.size(); ++i) {
    const Type& type = op.operand_type(i);
    const Sharding wanted = wanted_by(op, mesh_, part.operand_tiles[in[i]], type);
    const Value* arg = part.program->body.args[i].get();
    check_type(op, arg->type, local_type(type, mesh_, wanted, source_name(op.kind), op.loc),
               "argument " + std::to_string(in[i]));
    map[arg] = mover_.reshard(operands[i], spec_of(wanted, type));
  }
  mover_.place(mover_.region(), op);
  for (const auto& inner : part.program->body.ops) {
    if (inner->kind != Kind::kReturn) {
      clone_op(*inner, mover_.region(), map);
    }
  }
  const Op& ret = *part.program->body.terminator();
  for (size_t i = 0; i < out.size(); ++i) {
    const Sharding wanted = wanted_by(op, mesh_, part.result_tiles[out[i]], op.type(i));
    Value* v = mapped(ret.operands[i], map);
    check_type(op, v->type, local_type(op.type(i), mesh_, wanted, source_name(op.kind), op.loc),
               "result " + std::to_string(out[i]));
    // A value of its own: several results, or an operand, may be one.
    v = mover_.make(Kind::kReshape, {v}, v->type);
    define(op.result(i), v, spec_of(wanted, op.type(i)));
  }
}

}  // namespace tpu::compiler
