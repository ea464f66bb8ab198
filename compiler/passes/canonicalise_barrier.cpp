// Pass `canonicalise`, the rule on optimization_barrier: see canonicalise.hpp.
#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "ir/op_traits.hpp"
#include "passes/canonicalise_rules.hpp"

namespace tpu::compiler::rules {
namespace {

// Occupies no memory worth a barrier: a view of constants or positions, or an integer that the
// sequencer may count with. A key of random bits has several words.
bool needs_no_memory(const Value* v) {
  while (v->def != nullptr && has_trait(v->def->kind, trait::kView)) {
    v = v->def->operands[static_cast<size_t>(v->index)];
  }
  const bool source =
      v->def != nullptr && (v->def->kind == Kind::kConstant || v->def->kind == Kind::kIota ||
                            v->def->kind == Kind::kPartitionId || v->def->kind == Kind::kReplicaId);
  return source || v->type.count() == 0 || (v->type.count() == 1 && !is_float(v->type.elem));
}

// A value of the region around a shard_map, whose body is no region of its own in the end.
bool is_from_outside(const Value* v) {
  return v->def == nullptr && v->owner->parent != nullptr &&
         v->owner->parent->kind == Kind::kManualComputation;
}

}  // namespace

std::vector<Value*> barrier(Op& op, Rewriter& rw, const Uses& uses, const Readers& readers) {
  // Held: keeps apart what is computed behind it. Made: nothing else reads what is waited for, so
  // that it need not be there: what it is made of is waited for.
  enum class Role : uint8_t { kNone, kMade, kAwaited, kHeld };
  std::vector<Role> roles;
  bool passes = false;  // a result that is its operand
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Value* v = op.operands[i];
    const auto found = readers.find(v);
    if (found == readers.end()) {
      return {};  // made in this sweep: what reads it is not known yet
    }
    const bool outside = is_from_outside(v), made = v->def != nullptr;
    const bool used = uses.contains(op.result(i)), shared = found->second > 1 || outside;
    const bool needed = used || shared;
    const Role role = needs_no_memory(v) || (!made && !outside) ? Role::kNone
                      : needed                                  ? Role::kAwaited
                                                                : Role::kMade;
    roles.push_back(used && shared && !needs_no_memory(v) ? Role::kHeld : role);
    passes = passes || (used && roles.back() != Role::kHeld);
  }
  if (std::ranges::count(roles, Role::kHeld) == 0) {
    return op.operands;
  }
  const std::unordered_set<const Value*> distinct(op.operands.begin(), op.operands.end());
  if (!passes && distinct.size() == op.operands.size() &&
      std::ranges::all_of(roles, [](Role role) { return role >= Role::kAwaited; })) {
    return {};
  }
  std::vector<Value*> operands, out;
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] >= Role::kAwaited) {
      if (std::ranges::find(operands, op.operands[i]) == operands.end()) {
        operands.push_back(op.operands[i]);
      }
    } else if (roles[i] == Role::kMade) {
      for (Value* v : op.operands[i]->def->operands) {
        if (v->def != nullptr && std::ranges::find(operands, v) == operands.end()) {
          operands.push_back(v);
        }
      }
    }
  }
  std::vector<Type> types;
  std::ranges::transform(operands, std::back_inserter(types),
                         [](const Value* v) { return v->type; });
  const Op* fewer = rw.make_op(op.kind, operands, std::move(types), NoAttrs{});
  for (size_t i = 0; i < roles.size(); ++i) {
    const auto at = std::ranges::find(operands, op.operands[i]) - operands.begin();
    out.push_back(roles[i] == Role::kHeld ? fewer->result(static_cast<size_t>(at))
                                          : op.operands[i]);
  }
  return out;
}

}  // namespace tpu::compiler::rules
