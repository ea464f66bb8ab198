// Sums over the slots of a program.
#include "figures/program_cost.hpp"

namespace tpu::driver {

ProgramCost program_cost(const exe::ExecutableT& exe) {
  ProgramCost cost;
  cost.matmul_flops = exe.matmul_flops;
  cost.vector_ops = exe.vector_ops;
  cost.hbm_read_bytes = exe.hbm_read_bytes;
  cost.hbm_written_bytes = exe.hbm_written_bytes;
  cost.link_bytes = exe.link_bytes;
  cost.estimated_cycles = exe.estimated_cycles;
  cost.code_bytes = exe.image.size();
  cost.vmem_peak_bytes = exe.vmem_peak_bytes;
  for (const auto& slot : exe.slots) {
    switch (slot->kind) {
      case exe::SlotKind::argument:
        cost.argument_bytes += slot->bytes;
        break;
      case exe::SlotKind::result:
        break;  // below, with those in the slots of donated arguments
      case exe::SlotKind::constant:
        cost.constant_bytes += slot->bytes;
        break;
      case exe::SlotKind::scratch:
        cost.scratch_bytes += slot->bytes;
        break;
    }
  }
  for (const auto& result : exe.results) {
    const exe::SlotT& slot = *exe.slots[result->slot];
    cost.result_bytes += slot.bytes;
    cost.donated_bytes += slot.kind == exe::SlotKind::argument ? slot.bytes : 0;
  }
  cost.hbm_bytes = cost.code_bytes + cost.argument_bytes + cost.result_bytes - cost.donated_bytes +
                   cost.constant_bytes + cost.scratch_bytes;
  return cost;
}

}  // namespace tpu::driver
