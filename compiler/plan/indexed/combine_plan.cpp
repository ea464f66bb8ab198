#include "plan/indexed/combine_plan.hpp"

#include <algorithm>

#include "plan/indexed/indexed_plan.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kUpdatePieceBytes = 512 * 1024;  // in VMEM

// Result i in VMEM with the contents of operand i, in its place where that is possible.
bool place_target(Residency& memory, const Kernel& k, size_t i, uint32_t op_id) {
  Buffer &from = memory.at(k.reads[i]), &to = memory.at(k.ops[0]->result(i));
  if (may_take_vmem(memory, k, from)) {
    take_vmem(memory, from, to);
    return true;
  }
  const auto address = memory.take(to.bytes);
  if (!address) {
    return false;
  }
  memory.touch(to);
  to.vmem = *address;
  memory.move(
      {place_of(from), vmem_addr(to.vmem), to.bytes, elem_bytes(to.value->type.elem), op_id});
  return true;
}

bool place_targets(Residency& memory, const Kernel& k, CombinePlan& plan, uint32_t op_id) {
  memory.pins().clear();
  for (const Value* v : k.reads) {
    memory.pins().add(memory.at(v));
  }
  for (size_t i = 0; i < k.ops[0]->results.size(); ++i) {
    const Buffer& out = memory.at(k.ops[0]->result(i));
    memory.pins().add(out);
    if (!place_target(memory, k, i, op_id)) {
      return false;
    }
    plan.targets.push_back({out.vmem, out.bytes});
  }
  return true;
}

bool place_updates(Residency& memory, const Kernel& k, CombinePlan& plan) {
  const size_t n = plan.targets.size();
  for (size_t i = 0; i < n; ++i) {
    const Buffer& u = memory.at(k.reads[n + 1 + i]);
    CombinePlan::Updates& updates = plan.updates.emplace_back();
    updates.from = place_of(u);
    updates.unit = elem_bytes(u.value->type.elem);
    if (u.vmem >= 0) {
      continue;
    }
    const auto address = memory.take(plan.piece_records * plan.width * updates.unit);
    if (!address) {
      return false;
    }
    updates.slot = *address;
  }
  for (const CombinePlan::Updates& u : plan.updates) {
    if (u.slot >= 0) {
      memory.give(u.slot);
    }
  }
  return true;
}

}  // namespace

std::optional<CombinePlan> plan_combine(const Kernel& k, const spec::BoardParams& board,
                                        Residency& memory, uint32_t op_id) {
  const Op& op = *k.ops[0];
  const size_t n = op.results.size();
  CombinePlan plan;
  plan.body = make_combine_body(op);
  plan.width = op.as<IndexedAttrs>().window[0];
  plan.records = op.operand_type(n).count();
  int64_t record_bytes = 1;
  for (size_t i = 0; i < n; ++i) {
    record_bytes += plan.width * elem_bytes(op.type(i).elem);
  }
  plan.piece_records = std::max<int64_t>(
      1, std::min({plan.records, board.core.smem_kib * 1024 / 8,
                   std::min(kUpdatePieceBytes, board.core.vmem_kib * 1024 / 16) / record_bytes}));
  Reservation whole(memory);
  if (!place_targets(memory, k, plan, op_id) || !place_updates(memory, k, plan)) {
    return std::nullopt;
  }
  plan.list = place_of(memory.at(k.reads[n]));
  whole.keep();
  return plan;
}

}  // namespace tpu::compiler
