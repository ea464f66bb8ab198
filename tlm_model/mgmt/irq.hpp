// Interrupt sources of a control hart: latched edges, one enable each, one line. Law:
// spec/regs/irq.toml.
#pragma once

#include <cstdint>
#include <systemc>

#include "mgmt/reg_block.hpp"
#include "probe/register_probe.hpp"
#include "tpu/spec/irq_regs.hpp"

namespace tpu::model {

class Irq : public RegBlock {
 public:
  explicit Irq(const RegisterProbe& probe) : probe_(probe) {}

  void raise(uint32_t sources) {
    set_pending(pending_ | sources);
    changed();
  }
  bool line() const { return (pending_ & enable_) != 0; }
  // Notified (delta) when the line may have risen.
  const sc_core::sc_event& event() const { return event_; }
  void reset() {
    set_pending(0);
    set_enable(0);
  }
  void visit_state(spec::Archive& archive) { archive(pending_, enable_); }

  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;
  bool peek(uint32_t offset, uint32_t& value) override;

 private:
  void set_pending(uint32_t sources) {
    pending_ = sources;
    probe_.tell(spec::irq::kPending, sources);
  }
  void set_enable(uint32_t sources) {
    enable_ = sources;
    probe_.tell(spec::irq::kEnable, sources);
  }
  void changed() {
    if (line()) {
      event_.notify(sc_core::SC_ZERO_TIME);
    }
  }

  const RegisterProbe probe_;
  uint32_t pending_ = 0;
  uint32_t enable_ = 0;
  sc_core::sc_event event_{"irq_event"};
};

}  // namespace tpu::model
