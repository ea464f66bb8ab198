// Events of faults, control harts, semaphores and registers to signals, see board_waves.hpp.
#include "tpu/spec/core_page_regs.hpp"
#include "tpu/spec/irq_regs.hpp"
#include "waves/board_waves.hpp"

namespace tpu::model {

void BoardWaves::fault(const FaultEvent& event) {
  if (!hear(event)) {
    return;
  }
  const CoreSignals& core = signals_.cores[event.source.core];
  set(core.fault_code, event.cycle, event.code);
  if (core.fault_count != kNoSignal) {
    set(core.fault_count, event.cycle, values_[core.fault_count] + 1);
  }
}

void BoardWaves::upset(const UpsetEvent& event) {
  if (!hear(event)) {
    return;
  }
  const CoreSignals& core = signals_.cores[event.core];
  if (core.upset != kNoSignal) {
    set(core.upset, event.cycle, texts_.upset(*fst_, event));
  }
  const uint32_t count = event.fires ? core.upset_count : core.damage_count;
  if (count != kNoSignal) {
    set(count, event.cycle, values_[count] + 1);
  }
}

void BoardWaves::hart(const HartEvent& event) {
  if (!hear(event)) {
    return;
  }
  const HartSignals& hart = signals_.cores[event.core].hart;
  set(hart.pc, event.cycle, event.pc);
  if (event.kind == HartEvent::Kind::kMmio) {
    set(hart.mmio_address, event.cycle, event.address);
    set(hart.mmio_data, event.cycle, event.data);
    set(hart.mmio_write, event.cycle, event.write ? 1 : 0);
    return;
  }
  constexpr uint64_t kMachineMode = 3;
  set(hart.wfi, event.cycle, event.kind == HartEvent::Kind::kSleep ? 1 : 0);
  set(hart.mode, event.cycle, kMachineMode);
  set(hart.mstatus, event.cycle, event.mstatus);
  set(hart.mie, event.cycle, event.mie);
  set(hart.mip, event.cycle, event.mip);
  set(hart.mepc, event.cycle, event.mepc);
  set(hart.mcause, event.cycle, event.mcause);
  set(hart.mtval, event.cycle, event.mtval);
}

void BoardWaves::hart_pc(const HartPcEvent& event) {
  if (hear(event)) {
    set(signals_.cores[event.core].hart.pc, event.cycle, event.pc);
  }
}

void BoardWaves::semaphore(const SemaphoreEvent& event) {
  if (hear(event)) {
    set(signals_.cores[event.core].semaphores[event.semaphore], event.cycle, event.value);
  }
}

void BoardWaves::device_register(const RegisterEvent& event) {
  if (!hear(event)) {
    return;
  }
  if (event.block == RegisterEvent::Block::kChipPage) {
    set(signals_.msi_pending[event.index], event.cycle, event.value);
    return;
  }
  CoreSignals& core = signals_.cores[event.index];
  if (event.block == RegisterEvent::Block::kCorePage) {
    const uint32_t value = event.offset == spec::core_page::kFwState
                               ? event.value & spec::core_page::kFwStateStateMask
                               : event.value;
    set(core.page.at(event.offset / 4), event.cycle, value);
    return;
  }
  uint32_t& known =
      event.offset == spec::irq::kPending ? irqs_[event.index].pending : irqs_[event.index].enable;
  known = event.value;
  set(core.irq_pending, event.cycle, irqs_[event.index].pending);
  set(core.irq_enable, event.cycle, irqs_[event.index].enable);
  set(core.irq_line, event.cycle,
      (irqs_[event.index].pending & irqs_[event.index].enable) != 0 ? 1 : 0);
}

}  // namespace tpu::model
