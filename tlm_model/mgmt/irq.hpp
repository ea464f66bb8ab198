// Interrupt sources of a control hart: latched edges, one enable each, one line. Specification:
// spec/regs/irq.toml.
#pragma once

#include <cstdint>
#include <systemc>

#include "kernel/register_block.hpp"
#include "probe/register_probe.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

class Irq : public RegisterBlock {
 public:
  explicit Irq(const RegisterProbe& probe) : RegisterBlock(registers()), probe_(probe) {}

  void raise(uint32_t sources) {
    set_reg(spec::irq::kPending, pending_ | sources);
    changed();
  }
  bool line() const { return enabled() != 0; }
  // Notified (delta) when the line may have risen.
  const sc_core::sc_event& event() const { return event_; }
  void reset() { reset_registers(); }
  void visit_state(spec::Archive& archive) { visit_registers(archive); }

 private:
  static RegisterMap registers();
  void stored(uint32_t offset, uint32_t value) override { probe_.tell(offset, value); }
  uint32_t enabled() const { return pending_ & enable_; }
  void take(uint32_t sources) { set_reg(spec::irq::kPending, pending_ & ~sources); }
  void changed() {
    if (line()) {
      event_.notify(sc_core::SC_ZERO_TIME);
    }
  }

  const RegisterProbe probe_;
  const uint32_t& pending_ = cell(spec::irq::kPending);
  const uint32_t& enable_ = cell(spec::irq::kEnable);
  sc_core::sc_event event_{"irq_event"};
};

}  // namespace tpu::model
