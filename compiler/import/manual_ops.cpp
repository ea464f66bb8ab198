// See manual_ops.hpp.
#include "import/manual_ops.hpp"

#include "import/codes.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::frontend {

using bytecode::Dialect;
using bytecode::RawOp;

RawOp manual_op(uint32_t loc, std::string_view name) {
  RawOp op;
  op.dialect = Dialect::kVhlo;
  op.dialect_name = "vhlo";
  op.name = name;
  op.loc = loc;
  return op;
}

bool ManualProgram::is_token(uint32_t value) const {
  const auto& type = module.types[type_of(value)];
  return type.dialect == Dialect::kVhlo && type.code == bytecode::vhlo_type::kToken;
}

uint32_t ManualProgram::new_value(uint32_t type) {
  types[module.num_values] = type;
  return module.num_values++;
}

RawOp ManualProgram::custom_call(uint32_t loc, std::string_view target, uint32_t operand,
                                 const Said& sharding, uint32_t type) {
  RawOp op = manual_op(loc, "custom_call_v1");
  op.operands = {operand};
  op.results = {new_value(type)};
  op.result_types = {type};
  op.properties = {{"call_target_name", build.text(target)},
                   {"backend_config", build.text("")},
                   {"has_side_effect", build.integer(0)},
                   {"called_computations", build.array({})}};
  op.dictionary = build.dictionary({sharding});
  return op;
}

RawOp ManualProgram::reshape(uint32_t loc, uint32_t operand, uint32_t type) {
  RawOp op = manual_op(loc, "reshape_v1");
  op.operands = {operand};
  op.results = {new_value(type)};
  op.result_types = {type};
  return op;
}

void ManualProgram::fail(const RawOp& op, const std::string& message) const {
  throw Error(message, display_name(op), Tables(module).loc(op.loc));
}

}  // namespace tpu::compiler::frontend
