// Control and status registers of the control hart: the machine-mode set that the firmware uses.
// Every other number is an illegal instruction, as is a write to a read-only one.
#include "hart/hart_csrs.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kMisa = 1U << 30 | 1U << ('I' - 'A') | 1U << ('M' - 'A') | 1U << ('C' - 'A');
constexpr uint32_t kWiredIrqs = static_cast<uint32_t>(HartIrq::kSoftware) |
                                static_cast<uint32_t>(HartIrq::kTimer) |
                                static_cast<uint32_t>(HartIrq::kExternal);

// `base` with its low or high word replaced.
constexpr uint64_t with_word(uint64_t base, bool high, uint32_t word) {
  return high ? (base & 0xFFFFFFFFU) | uint64_t{word} << 32 : (base & ~uint64_t{0xFFFFFFFF}) | word;
}

}  // namespace

bool HartCsrs::read(uint32_t number, const Now& now, uint32_t& value) const {
  const uint64_t mcycle = now.cycles + mcycle_offset_;
  const uint64_t minstret = now.instret + minstret_offset_;
  switch (number) {
    case kCsrMstatus:
      value = mstatus_;
      return true;
    case kCsrMisa:
      value = kMisa;
      return true;
    case kCsrMie:
      value = mie_;
      return true;
    case kCsrMip:
      value = mip_;
      return true;
    case kCsrMtvec:
      value = mtvec_;
      return true;
    case kCsrMscratch:
      value = mscratch_;
      return true;
    case kCsrMepc:
      value = mepc_;
      return true;
    case kCsrMcause:
      value = mcause_;
      return true;
    case kCsrMtval:
      value = mtval_;
      return true;
    case kCsrMcycle:
      value = static_cast<uint32_t>(mcycle);
      return true;
    case kCsrMcycleh:
      value = static_cast<uint32_t>(mcycle >> 32);
      return true;
    case kCsrMinstret:
      value = static_cast<uint32_t>(minstret);
      return true;
    case kCsrMinstreth:
      value = static_cast<uint32_t>(minstret >> 32);
      return true;
    case kCsrMhartid:
      value = hart_id_;
      return true;
    case kCsrMstatush:
    case kCsrMvendorid:
    case kCsrMarchid:
    case kCsrMimpid:
    case kCsrMconfigptr:
      value = 0;
      return true;
    default:
      value = 0;
      return false;
  }
}

bool HartCsrs::write(uint32_t number, const Now& now, uint32_t value) {
  const uint64_t mcycle = now.cycles + mcycle_offset_;
  const uint64_t minstret = now.instret + minstret_offset_;
  switch (number) {
    case kCsrMstatus:
      mstatus_ = kMstatusMpp | (value & (kMstatusMie | kMstatusMpie));
      return true;
    case kCsrMie:
      mie_ = value & kWiredIrqs;
      return true;
    case kCsrMtvec:
      mtvec_ = value & ~2U;
      return true;
    case kCsrMscratch:
      mscratch_ = value;
      return true;
    case kCsrMepc:
      mepc_ = value & ~1U;
      return true;
    case kCsrMcause:
      mcause_ = value;
      return true;
    case kCsrMtval:
      mtval_ = value;
      return true;
    case kCsrMcycle:
    case kCsrMcycleh:
      mcycle_offset_ = with_word(mcycle, number == kCsrMcycleh, value) - now.cycles;
      return true;
    case kCsrMinstret:
    case kCsrMinstreth:
      minstret_offset_ = with_word(minstret, number == kCsrMinstreth, value) - now.instret;
      return true;
    case kCsrMisa:
    case kCsrMip:  // all wired bits are inputs
    case kCsrMstatush:
      return true;
    default:
      return false;
  }
}

void HartCsrs::reset() {
  mstatus_ = kMstatusMpp;
  mie_ = 0;
  mtvec_ = 0;
  mscratch_ = 0;
  mepc_ = 0;
  mcause_ = 0;
  mtval_ = 0;
}

void HartCsrs::set_irq(HartIrq irq, bool level) {
  const uint32_t bit = static_cast<uint32_t>(irq);
  mip_ = level ? (mip_ | bit) : (mip_ & ~bit);
}

uint32_t HartCsrs::interrupt() const {
  const uint32_t active = mip_ & mie_;
  return (active & static_cast<uint32_t>(HartIrq::kExternal)) != 0   ? 11U
         : (active & static_cast<uint32_t>(HartIrq::kSoftware)) != 0 ? 3U
                                                                     : 7U;
}

uint32_t HartCsrs::enter_trap(uint32_t cause, uint32_t tval, uint32_t pc) {
  mepc_ = pc;
  mcause_ = cause;
  mtval_ = tval;
  const bool enabled = (mstatus_ & kMstatusMie) != 0;
  mstatus_ = kMstatusMpp | (enabled ? kMstatusMpie : 0U);
  const bool vectored = (mtvec_ & 1U) != 0 && (cause & kCauseInterrupt) != 0;
  return (mtvec_ & ~3U) + (vectored ? 4U * (cause & ~kCauseInterrupt) : 0U);
}

uint32_t HartCsrs::return_from_trap() {
  const bool enable = (mstatus_ & kMstatusMpie) != 0;
  mstatus_ = kMstatusMpp | kMstatusMpie | (enable ? kMstatusMie : 0U);
  return mepc_;
}

}  // namespace tpu::model
