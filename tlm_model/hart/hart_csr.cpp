// Control and status registers of the control hart: the machine-mode set that the firmware uses.
// Every other number is an illegal instruction, as is a write to a read-only one.
#include "hart/hart_csr.hpp"

#include "hart/hart.hpp"

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

bool Hart::read_csr(uint32_t number, uint64_t cycles_now, uint64_t instret_now,
                    uint32_t& value) const {
  const uint64_t mcycle = cycles_now + mcycle_offset_;
  const uint64_t minstret = instret_now + minstret_offset_;
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

bool Hart::write_csr(uint32_t number, uint64_t cycles_now, uint64_t instret_now, uint32_t value) {
  const uint64_t mcycle = cycles_now + mcycle_offset_;
  const uint64_t minstret = instret_now + minstret_offset_;
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
      mcycle_offset_ = with_word(mcycle, number == kCsrMcycleh, value) - cycles_now;
      return true;
    case kCsrMinstret:
    case kCsrMinstreth:
      minstret_offset_ = with_word(minstret, number == kCsrMinstreth, value) - instret_now;
      return true;
    case kCsrMisa:
    case kCsrMip:  // all wired bits are inputs
    case kCsrMstatush:
      return true;
    default:
      return false;
  }
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
  if (!read_csr(number, cycles_now, instret_now, old) || (writes && read_only)) {
    return false;
  }
  if (writes) {
    const uint32_t value = kind == 1 ? operand : kind == 2 ? (old | operand) : (old & ~operand);
    if (!write_csr(number, cycles_now, instret_now + 1, value)) {
      return false;
    }
  }
  if (rd != 0) {
    regs_[rd] = old;
  }
  return true;
}

bool Hart::has_csr(uint32_t number) const {
  uint32_t value = 0;
  return read_csr(number, cycles_, instret_, value);
}

void Hart::set_csr(uint32_t number, uint32_t value) { write_csr(number, cycles_, instret_, value); }

uint32_t Hart::csr(uint32_t number) const {
  uint32_t value = 0;
  read_csr(number, cycles_, instret_, value);
  return value;
}

}  // namespace tpu::model
