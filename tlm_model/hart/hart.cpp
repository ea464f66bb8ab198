// Control hart outside the interpreter loop: memory map, traps, CSRs, device accesses, debug port.
#include "hart/hart.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "hart/hart_csr.hpp"

namespace tpu::model {

Hart::Hart(uint32_t hart_id, const HartTiming& timing) : hart_id_(hart_id), timing_(timing) {
  reset(0);
}

void Hart::add_memory(const HartMemory& memory) {
  if (memory.data == nullptr || memory.size_bytes == 0 || memory.size_bytes % 4 != 0 ||
      memory.base % 4 != 0 || memory.size_bytes - 1 > UINT32_MAX - memory.base) {
    throw std::invalid_argument("hart memory must be word aligned, not empty and below 4 GiB");
  }
  for (const Region& region : regions_) {
    if (memory.base - region.memory.base < region.memory.size_bytes ||
        region.memory.base - memory.base < memory.size_bytes) {
      throw std::invalid_argument("hart memories overlap");
    }
  }
  Region region;
  region.memory = memory;
  if (memory.executable) {
    region.code.resize(memory.size_bytes / 2 + 1);
    region.code.back().op = HartOp::kRegionEnd;
  }
  regions_.push_back(std::move(region));
  if (memory.writable && !memory.executable && fast_data_.data == nullptr) {
    fast_data_ = memory;
  }
}

void Hart::add_mmio_window(uint32_t base, uint32_t size_bytes) {
  windows_.push_back({base, size_bytes});
}

void Hart::reset(uint32_t reset_pc) {
  regs_.fill(0);
  pc_ = reset_pc & ~1U;
  mstatus_ = kMstatusMpp;
  mie_ = 0;
  mtvec_ = 0;
  mscratch_ = 0;
  mepc_ = 0;
  mcause_ = 0;
  mtval_ = 0;
  mmio_ = {};
  mmio_pending_ = false;
  waiting_ = false;
  dead_ = false;
  in_exception_ = false;
  reported_breakpoint_ = kNoBreakpoint;
  watch_hit_.reset();
  carried_cycles_ = 0;
}

Hart::Region* Hart::find_region(uint32_t addr, uint32_t size_bytes) {
  return const_cast<Region*>(std::as_const(*this).find_region(addr, size_bytes));
}

const Hart::Region* Hart::find_region(uint32_t addr, uint32_t size_bytes) const {
  for (const Region& region : regions_) {
    const uint32_t offset = addr - region.memory.base;
    if (offset < region.memory.size_bytes && region.memory.size_bytes - offset >= size_bytes) {
      return &region;
    }
  }
  return nullptr;
}

bool Hart::in_window(uint32_t addr, uint32_t size_bytes) const {
  return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
    const uint32_t offset = addr - window.base;
    return offset < window.size_bytes && window.size_bytes - offset >= size_bytes;
  });
}

DecodedInsn Hart::decode_at(const Region& region, uint32_t addr) const {
  const uint32_t offset = addr - region.memory.base;
  uint16_t low = 0;
  std::memcpy(&low, region.memory.data + offset, sizeof low);
  DecodedInsn insn;
  uint32_t raw = low;
  if ((low & 3U) == 3U) {
    if (region.memory.size_bytes - offset < 4) {  // the second half lies outside the memory
      insn.op = HartOp::kFetchFault;
      insn.imm = 2;
      return insn;
    }
    std::memcpy(&raw, region.memory.data + offset, sizeof raw);
    insn = decode_rv32(raw, addr);
    insn.halfwords = 2;
  } else {
    insn = decode_rv32(expand_rvc(low), addr);
    insn.halfwords = 1;
  }
  insn.raw = raw;
  switch (insn.op) {
    case HartOp::kLb:
    case HartOp::kLh:
    case HartOp::kLw:
    case HartOp::kLbu:
    case HartOp::kLhu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.load_cycles);
      break;
    case HartOp::kMul:
    case HartOp::kMulh:
    case HartOp::kMulhsu:
    case HartOp::kMulhu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.mul_cycles);
      break;
    case HartOp::kDiv:
    case HartOp::kDivu:
    case HartOp::kRem:
    case HartOp::kRemu:
      insn.cycles = static_cast<uint16_t>(1 + timing_.div_cycles);
      break;
    case HartOp::kJalFar:
    case HartOp::kJalr:
      insn.cycles = static_cast<uint16_t>(1 + timing_.taken_branch_cycles);
      break;
    default:
      break;
  }
  const uint32_t target = offset + static_cast<uint32_t>(insn.imm);
  if (insn.op == HartOp::kJalFar && target < region.memory.size_bytes) {
    insn.op = HartOp::kJal;
    insn.imm /= 2;
  } else if (insn.op == HartOp::kBranchFar && target < region.memory.size_bytes) {
    constexpr HartOp kBranches[8] = {HartOp::kBeq, HartOp::kBne, HartOp::kIllegal, HartOp::kIllegal,
                                     HartOp::kBlt, HartOp::kBge, HartOp::kBltu,    HartOp::kBgeu};
    const uint32_t word = insn.halfwords == 2 ? raw : expand_rvc(low);
    insn.op = kBranches[(word >> 12) & 7U];
    insn.imm /= 2;
  }
  if (std::find(breakpoints_.begin(), breakpoints_.end(), addr) != breakpoints_.end()) {
    insn.real_op = insn.op;
    insn.op = HartOp::kBreakpoint;
  }
  return insn;
}

void Hart::drop_decoded(Region& region, uint32_t addr, uint32_t size_bytes) {
  if (region.code.empty() || size_bytes == 0) {
    return;
  }
  const uint32_t offset = addr - region.memory.base;
  const uint32_t first = offset / 2;
  const uint32_t last = (offset + size_bytes - 1) / 2;
  // One halfword earlier too: a long instruction may begin there.
  for (uint32_t i = first == 0 ? 0 : first - 1; i <= last; ++i) {
    region.code[i].op = HartOp::kUndecoded;
  }
  drop_code(region, first, last);
}

void Hart::memory_changed(uint32_t addr, uint32_t size_bytes) {
  for (Region& region : regions_) {
    const uint64_t begin = std::max<uint64_t>(addr, region.memory.base);
    const uint64_t end = std::min(uint64_t{addr} + size_bytes,
                                  uint64_t{region.memory.base} + region.memory.size_bytes);
    if (begin < end) {
      drop_decoded(region, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin));
    }
  }
}

Hart::Access Hart::load_slow(uint32_t addr, uint32_t size_bytes, uint32_t& value) {
  if (const Region* region = find_region(addr, size_bytes)) {
    value = 0;
    std::memcpy(&value, region->memory.data + (addr - region->memory.base), size_bytes);
    return Access::kDone;
  }
  return in_window(addr, size_bytes) ? Access::kMmio : Access::kFault;
}

Hart::Access Hart::store_slow(uint32_t addr, uint32_t size_bytes, uint32_t value) {
  if (Region* region = find_region(addr, size_bytes)) {
    if (!region->memory.writable) {
      return Access::kFault;
    }
    std::memcpy(region->memory.data + (addr - region->memory.base), &value, size_bytes);
    drop_decoded(*region, addr, size_bytes);
    return Access::kDone;
  }
  return in_window(addr, size_bytes) ? Access::kMmio : Access::kFault;
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
  note_access(mmio_.addr, mmio_.size_bytes, mmio_.write);
}

void Hart::fail_mmio() {
  if (!mmio_pending_) {
    throw std::logic_error("fail_mmio without a pending device access");
  }
  mmio_pending_ = false;
  carried_cycles_ += 1;
  enter_trap(mmio_.write ? kCauseStoreAccess : kCauseLoadAccess, mmio_.addr);
}

void Hart::set_irq(HartIrq irq, bool level) {
  const uint32_t bit = static_cast<uint32_t>(irq);
  mip_ = level ? (mip_ | bit) : (mip_ & ~bit);
}

void Hart::enter_trap(uint32_t cause, uint32_t tval) {
  const bool interrupt = (cause & kCauseInterrupt) != 0;
  if (!interrupt && in_exception_) {
    dead_ = true;
    return;
  }
  in_exception_ = in_exception_ || !interrupt;
  reported_breakpoint_ = kNoBreakpoint;
  mepc_ = pc_;
  mcause_ = cause;
  mtval_ = tval;
  const bool enabled = (mstatus_ & kMstatusMie) != 0;
  mstatus_ = kMstatusMpp | (enabled ? kMstatusMpie : 0U);
  const bool vectored = (mtvec_ & 1U) != 0 && interrupt;
  pc_ = (mtvec_ & ~3U) + (vectored ? 4U * (cause & ~kCauseInterrupt) : 0U);
}

void Hart::return_from_trap() {
  const bool enable = (mstatus_ & kMstatusMpie) != 0;
  mstatus_ = kMstatusMpp | kMstatusMpie | (enable ? kMstatusMie : 0U);
  in_exception_ = false;
  pc_ = mepc_;
}

bool Hart::takes_interrupts() const { return (mstatus_ & kMstatusMie) != 0; }

bool Hart::take_interrupt() {
  const uint32_t active = mip_ & mie_;
  if (active == 0 || (mstatus_ & kMstatusMie) == 0) {
    return false;
  }
  const uint32_t number = (active & static_cast<uint32_t>(HartIrq::kExternal)) != 0   ? 11U
                          : (active & static_cast<uint32_t>(HartIrq::kSoftware)) != 0 ? 3U
                                                                                      : 7U;
  enter_trap(kCauseInterrupt | number, 0);
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

void Hart::set_breakpoint(uint32_t addr) {
  if (std::find(breakpoints_.begin(), breakpoints_.end(), addr) == breakpoints_.end()) {
    breakpoints_.push_back(addr);
    memory_changed(addr, 2);
  }
}

void Hart::clear_breakpoint(uint32_t addr) {
  std::erase(breakpoints_, addr);
  memory_changed(addr, 2);
}

void Hart::set_watch(const HartWatch& watch) {
  if (std::ranges::find(watches_, watch) == watches_.end()) {
    watches_.push_back(watch);
  }
}

void Hart::clear_watch(const HartWatch& watch) { std::erase(watches_, watch); }

// True if the access that was done is watched.
bool Hart::note_access(uint32_t addr, uint32_t size_bytes, bool write) {
  for (const HartWatch& watch : watches_) {
    if ((write ? watch.write : watch.read) &&
        (addr - watch.addr < watch.size_bytes || watch.addr - addr < size_bytes)) {
      watch_hit_ = watch;
      return true;
    }
  }
  return false;
}

bool Hart::read_memory(uint32_t addr, std::span<uint8_t> data) const {
  const Region* region = find_region(addr, static_cast<uint32_t>(data.size()));
  if (region != nullptr) {
    std::copy_n(region->memory.data + (addr - region->memory.base), data.size(), data.begin());
  }
  return region != nullptr;
}

bool Hart::write_memory(uint32_t addr, std::span<const uint8_t> data) {
  Region* region = find_region(addr, static_cast<uint32_t>(data.size()));
  if (region != nullptr) {
    std::ranges::copy(data, region->memory.data + (addr - region->memory.base));
    drop_decoded(*region, addr, static_cast<uint32_t>(data.size()));
  }
  return region != nullptr;
}

HartRun Hart::run(uint64_t budget_cycles) {
  const uint64_t carried = carried_cycles_;
  carried_cycles_ = 0;
  cycles_ += carried;
  watch_hit_.reset();
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
