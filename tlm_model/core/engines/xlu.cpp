// Transpose commands.
#include "core/engines/xlu.hpp"

#include <algorithm>

#include "core/operand_check.hpp"
#include "core/overlap.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/fault_regs.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

Xlu::Xlu(sc_core::sc_module_name name, const EngineContext& context, uint8_t* vmem,
         uint64_t vmem_bytes)
    : Engine(name, spec::Queue::kXlu, context),
      vmem_(vmem),
      vmem_bytes_(vmem_bytes),
      works_(context.pool, context.copies, flight_capacity()) {}

bool Xlu::start_command(Flight& flight) {
  const auto& plan = std::get<TransposePlan>(flight.queued.command->plan);
  uint64_t src = 0;
  uint64_t dst = 0;
  const bool src_ok = operand_in(plan.src, flight.queued.addend[0], vmem_bytes_, &src);
  if (!src_ok || !operand_in(plan.dst, flight.queued.addend[1], vmem_bytes_, &dst)) {
    fault_port->raise(range_fault_at(flight, TPU_FAULT_VMEM_RANGE, src_ok ? 1 : 0,
                                     src_ok ? plan.dst : plan.src, vmem_bytes_),
                      "transpose operand outside of VMEM");
    return false;
  }
  if (transpose_overlaps(plan, static_cast<int64_t>(src), static_cast<int64_t>(dst))) {
    FaultInfo info = fault_at(flight, TPU_FAULT_DESCRIPTOR);
    info.detail = spec::fault::kDetailOverlap;
    info.address = operand_first(plan.dst, dst);
    info.length = operand_length(plan.dst);
    fault_port->raise(info, "the destination of the transpose overlaps its source");
    return false;
  }
  if (context().wants_access() && !tell_accesses(flight, plan, src, dst)) {
    return false;
  }
  const uint64_t now = now_cycles();
  flight.free_at = now + plan.cycles.free_at;
  flight.done_at = now + plan.cycles.done_at;
  if (!context().no_data) {
    const TransposeShape& s = plan.shape;
    const uint64_t bytes = s.batch * s.rows * s.cols * s.elem_bytes;
    Work& work = works_.next();
    context().pool.cut(work, JobKind::kTranspose, bytes, s.rows);
    write_vmem(work, plan.dst, dst, operand_length(plan.dst) == bytes,
               plan.bytes[1].at(static_cast<int64_t>(dst)));
    const ptrdiff_t shift =
        read_vmem(work, plan.src, src, plan.bytes[0].at(static_cast<int64_t>(src)));
    work.prepare(s, vmem_ + src + shift, vmem_ + dst);
    work.touches.launch(context().pool, work);
    works_.started(flight.index);
  }
  return true;
}

bool Xlu::tell_accesses(const Flight& flight, const TransposePlan& plan, uint64_t src,
                        uint64_t dst) {
  const uint32_t me = context().core_id;
  constexpr auto kVmem = ProbeMemory::kVmem;
  const std::array<AccessRange, 2> extents = {operand_range(plan.src, me, kVmem, src, false),
                                              operand_range(plan.dst, me, kVmem, dst, true)};
  return tell_access(flight, extents, [&](const RangeVisitor& visit) {
    visit_pattern(plan.bytes[0].at(static_cast<int64_t>(src)), extents[0], visit);
    visit_pattern(plan.bytes[1].at(static_cast<int64_t>(dst)), extents[1], visit);
  });
}

void Xlu::settle_data() { works_.settle(); }

void Xlu::finish_command(Flight& flight) {
  if (!context().no_data) {
    works_.ended(flight.index);
  }
}

}  // namespace tpu::model
