// Board time and a one-shot alarm for the control hart. An armed alarm is no activity: it does not
// keep the board from being quiescent. Law: spec/regs/timer.toml.
#pragma once

#include <cstdint>
#include <systemc>

#include "mgmt/irq.hpp"
#include "mgmt/reg_block.hpp"

namespace tpu::model {

class Timer : public sc_core::sc_module, public RegBlock {
 public:
  SC_HAS_PROCESS(Timer);
  Timer(sc_core::sc_module_name name, Irq& irq);

  void reset();
  void visit_state(spec::Archive& archive);
  bool read(uint32_t offset, uint32_t& value) override;
  bool write(uint32_t offset, uint32_t value) override;
  bool peek(uint32_t offset, uint32_t& value) override;

 private:
  void alarm_method();
  void arm();

  Irq& irq_;
  uint32_t time_high_ = 0;
  uint64_t compare_ = 0;
  bool armed_ = false;
  sc_core::sc_event alarm_event_{"alarm_event"};
};

}  // namespace tpu::model
