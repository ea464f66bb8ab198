// Custom calls by which XLA keeps Shardy's operations in an HLO module: see opcodes.hpp.
// jax.shard_map is, with the attributes as text in frontend_attributes,
//
//   g = (..) custom-call(x, y), "xla.sdy.GlobalToLocalShape" {xla.sdy.in_shardings, .manual_axes}
//   c = (..) call(g.0, g.1)
//   r = (..) custom-call(c.0, c.1), "xla.sdy.LocalToGlobalShape" {xla.sdy.out_shardings, ..}
//
// For each array it becomes what GSPMD has there (gspmd.hpp), with a sharding of Shardy.
#include "import/codes.hpp"
#include "import/gspmd.hpp"
#include "import/hlo/opcodes.hpp"
#include "import/hlo/shardy_names.hpp"
#include "ir/error.hpp"

namespace tpu::compiler::hlo {
namespace {

// The instruction that a chain of get-tuple-element begins with.
const Instruction& source(const Step& step, const Instruction& of) {
  const Instruction* at = &of;
  while (at->opcode == "get-tuple-element" && !at->operands.empty()) {
    at = &step.scope.computation.instructions[at->operands[0]];
  }
  return *at;
}

// The call of the body. Old versions of XLA keep the attributes there.
const Instruction* call_of(const Step& step) {
  const auto& all = step.scope.computation.instructions;
  if (shardy::target_of(step.at) == shardy::kLeave) {
    const Instruction& made = source(step, all[step.at.operands[0]]);
    return made.opcode == "call" ? &made : nullptr;
  }
  auto& readers = step.scope.calls;
  if (!readers) {
    readers.emplace();
    for (const Instruction& at : all) {
      for (size_t i = 0; at.opcode == "call" && i < at.operands.size(); ++i) {
        readers->emplace(&source(step, all[at.operands[i]]), &at);
      }
    }
  }
  const auto it = readers->find(&step.at);
  return it == readers->end() ? nullptr : it->second;
}

std::string_view needed(const Step& step, std::string_view key) {
  const std::string_view* text = shardy::find(step.at.attributes, key);
  if (text == nullptr && step.num_operands() > 0) {
    const Instruction* call = call_of(step);
    text = call == nullptr ? nullptr : shardy::find(call->attributes, key);
  }
  if (text == nullptr) {
    step.fail("its frontend attribute '" + std::string(key) +
              "' is missing; write the program as StableHLO instead");
  }
  return *text;
}

std::vector<uint32_t> shardings(const Step& step, std::string_view key, size_t count,
                                bool open = false) {
  const std::string_view text = needed(step, key);
  std::vector<uint32_t> all =
      step.read_attribute(key, [&] { return step.converter.shardy.per_value(text, open); });
  if (all.size() != count) {
    step.fail("its frontend attribute '" + std::string(key) + "' has " +
              std::to_string(all.size()) + " shardings, expected " + std::to_string(count) +
              ", one for each array");
  }
  return all;
}

RawOp gspmd_call(const Step& step, std::string_view target, uint32_t operand, uint32_t sharding) {
  auto& build = step.build();
  RawOp op = step.op("custom_call_v1");
  op.operands = {operand};
  op.properties = {{"call_target_name", build.text(target)},
                   {"backend_config", build.text("")},
                   {"has_side_effect", build.integer(0)},
                   {"called_computations", build.array({})}};
  op.dictionary = build.dictionary({{"sdy.sharding", sharding}});
  return op;
}

// Arrays of all devices to those of one, or back.
void border(const Step& step, bool enters) {
  const std::vector<uint32_t> operands = step.values();
  const std::vector<const Shape*> results = leaves_of(step.at.shape);
  if (operands.size() != results.size()) {
    step.fail("it has " + std::to_string(operands.size()) + " arrays as operands and " +
              std::to_string(results.size()) + " as results, expected as many");
  }
  const std::vector<uint32_t> sharded =
      shardings(step, enters ? shardy::kIn : shardy::kOut, operands.size());
  const std::string_view text = needed(step, shardy::kManualAxes);
  const uint32_t axes = step.read_attribute(
      shardy::kManualAxes, [&] { return step.converter.shardy.manual_axes(text); });
  std::vector<const Shape*> given;
  for (size_t i = 0; i < step.num_operands(); ++i) {
    const std::vector<const Shape*> leaves = leaves_of(step.shape(i));
    given.insert(given.end(), leaves.begin(), leaves.end());
  }
  std::vector<uint32_t> made;
  for (size_t i = 0; i < operands.size(); ++i) {
    uint32_t value = operands[i];
    if (enters) {
      value = step.add(gspmd_call(step, frontend::kGspmdConstraint, value, sharded[i]), *given[i]);
    }
    RawOp op =
        gspmd_call(step, enters ? frontend::kGspmdEnter : frontend::kGspmdLeave, value, sharded[i]);
    op.properties.emplace_back("manual_axes", axes);
    made.push_back(step.add(std::move(op), *results[i]));
  }
  step.define(std::move(made));
}

RawOp shardy_op(const Step& step, std::string_view name) {
  RawOp op = step.with_operands(name);
  op.dialect = bytecode::Dialect::kSdy;
  op.dialect_name = "sdy";
  return op;
}

void constraint(const Step& step, bool open) {
  RawOp op = shardy_op(step, "sharding_constraint");
  op.properties = {{"sharding", shardings(step, shardy::kSharding, 1, open)[0]}};
  step.finish(std::move(op));
}

void group(const Step& step) {
  RawOp op = shardy_op(step, "sharding_group");
  const std::string_view text = needed(step, shardy::kGroupId);
  const int64_t id =
      step.read_attribute(shardy::kGroupId, [&] { return ShardyTexts::number(text); });
  op.properties = {{"group_id", step.build().integer(id)}};
  step.finish(std::move(op));
}

}  // namespace

bool shardy_custom_call(const Step& step) {
  const std::string_view target = shardy::target_of(step.at);
  if (target == shardy::kEnter || target == shardy::kLeave) {
    border(step, target == shardy::kEnter);
  } else if (target == frontend::kGspmdConstraint &&
             shardy::find(step.at.attributes, shardy::kSharding) != nullptr) {
    constraint(step, false);
  } else if (target == shardy::kResult && !step.converter.makes_result(step.at)) {
    constraint(step, true);  // others read the array too: to them it is no more than a hint
  } else if (target == shardy::kResult || target == shardy::kBarrier) {
    step.define(step.operand(0));
  } else if (target == shardy::kGroup) {
    group(step);
  } else {
    return false;
  }
  return true;
}

}  // namespace tpu::compiler::hlo
