// Static facts about control flow: see control_facts.hpp.
#include "kernel/control_facts.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

// Integers whose value a 64-bit register holds with its sign.
bool fits_register(const Type& t) {
  return t.count() == 1 && !is_float(t.elem) && t.elem != Elem::kU64;
}

bool is_power_of_two(const Value* v) {
  if (v->def == nullptr || v->def->kind != Kind::kConstant) {
    return false;
  }
  const int64_t n = v->def->as<ConstantAttrs>().value.as_int(0);
  return n > 0 && n < INT32_MAX && (n & (n - 1)) == 0;
}

}  // namespace

ControlFacts::ControlFacts(const Module& module, int64_t table_words,
                           const std::set<const Op*>* without_results)
    : classes_(module),
      budget_(table_words),
      stacks_(module, SlotNumbers(*module.main), budget_),
      result_stacks_(without_results == nullptr ? ResultStacks()
                                                : ResultStacks(module, SlotNumbers(*module.main),
                                                               budget_, *without_results)) {
  const Uses uses = compute_uses(module.main->body);
  walk(module.main->body, [&](const Op& op) {
    const auto loop = counted_loop(op);
    if (loop && !uses.contains(op.result(loop->index))) {
      counted_[&op] = *loop;
      counters_.insert(op.regions[1]->args[loop->index].get());
    }
  });
  find_costs(module.main->body);
  find_skipped(module, uses);
}

const CountedLoop* ControlFacts::counted(const Op& op) const {
  const auto it = counted_.find(&op);
  return it == counted_.end() ? nullptr : &it->second;
}

bool ControlFacts::on_sequencer(const Value* v) const {
  return cost(v).registers <= kScalarRegisters;
}

ControlFacts::ScalarCost ControlFacts::cost(const Value* v) const {
  if (v->def == nullptr) {
    return fits_register(v->type) && counters_.contains(v) ? ScalarCost{1, 1} : ScalarCost{};
  }
  const auto it = costs_.find(v);
  return it == costs_.end() ? ScalarCost{} : it->second;
}

// In program order: operands come before the ops that read them.
void ControlFacts::find_costs(const Region& body) {
  walk(body, [&](const Op& op) {
    if (op.results.size() != 1 || !fits_register(op.type())) {
      return;
    }
    const ScalarCost c = cost_of(op);
    if (c.registers <= kScalarRegisters && c.ops <= kScalarOps) {
      costs_[op.result()] = c;
    }
  });
}

ControlFacts::ScalarCost ControlFacts::cost_of(const Op& op) const {
  // Operand i is computed while `held` registers keep others.
  ScalarCost all{1, 1};
  const auto need = [&](size_t i, int held) {
    const ScalarCost c = cost(op.operands[i]);
    all.registers = std::max(all.registers, c.registers + held);
    all.ops += c.ops;
  };
  switch (op.kind) {
    case Kind::kConstant: {
      const int64_t n = op.as<ConstantAttrs>().value.as_int(0);
      return n >= INT32_MIN && n <= INT32_MAX ? all : ScalarCost{};
    }
    case Kind::kPartitionId:
    case Kind::kReplicaId:
      return all;
    case Kind::kReshape:
    case Kind::kBroadcastInDim:
    case Kind::kConvert:
    case Kind::kNegate:
    case Kind::kNot:
      need(0, 0);
      return all;
    case Kind::kRemainder:
    case Kind::kDivide:
      if (!is_power_of_two(op.operands[1])) {
        return {};
      }
      all.registers = 2;
      need(0, 0);
      return all;
    case Kind::kAdd:
    case Kind::kSubtract:
    case Kind::kMultiply:
    case Kind::kMinimum:
    case Kind::kMaximum:
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kXor:
    case Kind::kCompare:
      need(0, 0);
      need(1, 1);
      return all;
    case Kind::kSelect:
      need(1, 0);
      need(2, 1);
      need(0, 2);
      return all;
    default:  // is not computed by the sequencer
      return {};
  }
}

// True if `user` takes `v` from the sequencer.
bool ControlFacts::serves_sequencer(const Op& user, const Value* v) const {
  if (skipped_.contains(&user)) {
    return true;
  }
  const auto only_from = [&](size_t first) {
    return std::find(user.operands.begin(), user.operands.begin() + static_cast<ptrdiff_t>(first),
                     v) == user.operands.begin() + static_cast<ptrdiff_t>(first);
  };
  switch (user.kind) {
    case Kind::kDynamicSlice:
      return only_from(1);
    case Kind::kDynamicUpdateSlice:
      return only_from(2);
    case Kind::kIf:
    case Kind::kCase:
      return true;
    case Kind::kReturn: {  // the counter's next value
      const Op* owner = user.parent->parent;
      const CountedLoop* loop = owner == nullptr ? nullptr : counted(*owner);
      return loop != nullptr && user.operands[loop->index] == v &&
             std::count(user.operands.begin(), user.operands.end(), v) == 1;
    }
    default: {  // conditions of counted loops are not computed
      const Op* owner = user.parent->parent;
      return owner != nullptr && counted(*owner) != nullptr &&
             user.parent == owner->regions[0].get();
    }
  }
}

void ControlFacts::find_skipped(const Module& module, const Uses& uses) {
  std::vector<const Op*> order;
  walk(module.main->body, [&](const Op& op) { order.push_back(&op); });
  for (size_t i = order.size(); i-- > 0;) {
    const Op& op = *order[i];
    if (op.results.size() != 1 || !on_sequencer(op.result())) {
      continue;
    }
    const auto it = uses.find(op.result());
    if (it == uses.end() || std::all_of(it->second.begin(), it->second.end(), [&](const Op* user) {
          return serves_sequencer(*user, op.result());
        })) {
      skipped_.insert(&op);
    }
  }
}

}  // namespace tpu::compiler
