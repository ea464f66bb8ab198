// Control hart outside the interpreter loop: traps, CSR instructions, device accesses, debug port.
#include "hart/hart.hpp"

#include <stdexcept>

namespace tpu::model {

Hart::Hart(uint32_t hart_id, const HartTiming& timing)
    : timing_(timing), map_(timing), csrs_(hart_id) {
  reset(0);
}

void Hart::reset(uint32_t reset_pc) {
  regs_.fill(0);
  pc_ = reset_pc & ~1U;
  csrs_.reset();
  mmio_ = {};
  mmio_pending_ = false;
  waiting_ = false;
  dead_ = false;
  in_exception_ = false;
  reported_breakpoint_ = kNoBreakpoint;
  watches_.forget_hit();
  carried_cycles_ = 0;
}

void Hart::complete_mmio(uint32_t rdata) {
  if (!mmio_pending_) {
    throw std::logic_error("complete_mmio without a pending device access");
  }
  mmio_pending_ = false;
  if (!mmio_.write) {
    uint32_t value = rdata;
    switch (mmio_insn_.op) {
      case HartOp::kLb:
        value = static_cast<uint32_t>(static_cast<int8_t>(rdata));
        break;
      case HartOp::kLh:
        value = static_cast<uint32_t>(static_cast<int16_t>(rdata));
        break;
      case HartOp::kLbu:
        value = rdata & 0xFFU;
        break;
      case HartOp::kLhu:
        value = rdata & 0xFFFFU;
        break;
      default:
        break;
    }
    regs_[mmio_insn_.rd] = value;
  }
  pc_ += 2U * mmio_insn_.halfwords;
  ++instret_;
  carried_cycles_ += mmio_insn_.cycles;
  watches_.note(mmio_.addr, mmio_.size_bytes, mmio_.write);
}

void Hart::fail_mmio() {
  if (!mmio_pending_) {
    throw std::logic_error("Hart::fail_mmio: no device access is pending");
  }
  mmio_pending_ = false;
  carried_cycles_ += 1;
  enter_trap(mmio_.write ? kCauseStoreAccess : kCauseLoadAccess, mmio_.addr);
}

void Hart::enter_trap(uint32_t cause, uint32_t tval) {
  const bool interrupt = (cause & kCauseInterrupt) != 0;
  if (!interrupt && in_exception_) {
    dead_ = true;
    return;
  }
  in_exception_ = in_exception_ || !interrupt;
  reported_breakpoint_ = kNoBreakpoint;
  pc_ = csrs_.enter_trap(cause, tval, pc_);
}

void Hart::return_from_trap() {
  in_exception_ = false;
  pc_ = csrs_.return_from_trap();
}

bool Hart::take_interrupt() {
  if (!csrs_.pending() || !csrs_.interrupts_on()) {
    return false;
  }
  enter_trap(kCauseInterrupt | csrs_.interrupt(), 0);
  return true;
}

void Hart::set_reg(unsigned index, uint32_t value) {
  if (index != 0) {
    regs_.at(index) = value;
  }
}

void Hart::set_pc(uint32_t pc) {
  pc_ = pc & ~1U;
  reported_breakpoint_ = kNoBreakpoint;
  mmio_pending_ = false;
}

// `instret_now` counts instructions before this one; a written minstret takes effect after it.
bool Hart::execute_csr(uint32_t raw, uint64_t cycles_now, uint64_t instret_now) {
  const uint32_t number = raw >> 20;
  const uint32_t rd = (raw >> 7) & 31U;
  const uint32_t rs1 = (raw >> 15) & 31U;
  const uint32_t funct3 = (raw >> 12) & 7U;
  const uint32_t operand = (funct3 & 4U) != 0 ? rs1 : regs_[rs1];
  const uint32_t kind = funct3 & 3U;  // 1 write, 2 set, 3 clear
  const bool writes = kind == 1 || rs1 != 0;
  const bool read_only = (number >> 10) == 3;
  uint32_t old = 0;
  if (!csrs_.read(number, {cycles_now, instret_now}, old) || (writes && read_only)) {
    return false;
  }
  if (writes) {
    const uint32_t value = kind == 1 ? operand : kind == 2 ? (old | operand) : (old & ~operand);
    if (!csrs_.write(number, {cycles_now, instret_now + 1}, value)) {
      return false;
    }
  }
  if (rd != 0) {
    regs_[rd] = old;
  }
  return true;
}

HartExit Hart::run_code(const Region& region, const void* entry, int64_t& left, uint64_t& retired) {
  HartFrame frame{.regs = regs_.data(),
                  .data = map_.data().data,
                  .text = region.memory.data,
                  .entries = region.entries.data(),
                  .left = left,
                  .retired = retired,
                  .pc = pc_,
                  .exit = HartExit::kNext};
  map_.code()->enter(frame, entry);
  left = frame.left;
  retired = frame.retired;
  pc_ = frame.pc;
  return frame.exit;
}

HartRun Hart::run(uint64_t budget_cycles) {
  const uint64_t carried = carried_cycles_;
  carried_cycles_ = 0;
  cycles_ += carried;
  watches_.forget_hit();
  if (dead_) {
    return {carried, HartStop::kTrap};
  }
  if (mmio_pending_) {
    return {carried, HartStop::kMmio};
  }
  if (sleeping()) {
    return {carried, HartStop::kWfi};
  }
  waiting_ = false;
  take_interrupt();
  if (carried >= budget_cycles) {
    return {carried, HartStop::kBudget};
  }
  HartRun result = interpret(budget_cycles - carried);
  if (result.reason != HartStop::kBreak) {
    reported_breakpoint_ =
        kNoBreakpoint;  // the instruction has been executed, or its breakpoint is gone
  }
  result.cycles += carried;
  return result;
}

}  // namespace tpu::model
