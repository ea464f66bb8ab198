// Control and status registers of a control hart, and what traps do to them.
#pragma once

#include <cstdint>

#include "file/archive.hpp"
#include "hart/hart_csr.hpp"

namespace tpu::model {

// Bits of `mip`/`mie` that are wired.
enum class HartIrq : uint32_t {
  kSoftware = 1U << 3,
  kTimer = 1U << 7,
  kExternal = 1U << 11,
};

class HartCsrs {
 public:
  // What the counters count from.
  struct Now {
    uint64_t cycles;
    uint64_t instret;
  };

  explicit HartCsrs(uint32_t hart_id) : hart_id_(hart_id) {}

  // Lines and counters stay.
  void reset();
  // False: there is no such register. Reads give 0 then.
  bool read(uint32_t number, const Now& now, uint32_t& value) const;
  bool write(uint32_t number, const Now& now, uint32_t value);

  void set_irq(HartIrq irq, bool level);
  // An enabled source is pending, whether interrupts are on or not.
  bool pending() const { return (mip_ & mie_) != 0; }
  bool interrupts_on() const { return (mstatus_ & kMstatusMie) != 0; }
  // Of the interrupt to take: its number, of the source of the highest priority.
  uint32_t interrupt() const;
  // Both return the address where execution continues.
  uint32_t enter_trap(uint32_t cause, uint32_t tval, uint32_t pc);
  uint32_t return_from_trap();

  void visit_state(spec::Archive& archive) {
    archive(mstatus_, mie_, mip_, mtvec_, mscratch_, mepc_, mcause_, mtval_, mcycle_offset_,
            minstret_offset_);
  }

 private:
  const uint32_t hart_id_;
  uint32_t mstatus_ = 0;
  uint32_t mie_ = 0;
  uint32_t mip_ = 0;
  uint32_t mtvec_ = 0;
  uint32_t mscratch_ = 0;
  uint32_t mepc_ = 0;
  uint32_t mcause_ = 0;
  uint32_t mtval_ = 0;
  uint64_t mcycle_offset_ = 0;    // mcycle = cycles + offset, modulo 2^64
  uint64_t minstret_offset_ = 0;  // as mcycle
};

}  // namespace tpu::model
