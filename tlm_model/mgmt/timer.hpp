// Simulated time and a one-shot alarm for the control hart. An armed alarm is no activity: it does
// not keep the board from being quiescent. Specification: spec/regs/timer.toml.
#pragma once

#include <cstdint>
#include <systemc>

#include "kernel/cycles.hpp"
#include "kernel/register_block.hpp"
#include "mgmt/irq.hpp"

namespace tpu::model {

class Timer : public sc_core::sc_module, public RegisterBlock {
 public:
  SC_HAS_PROCESS(Timer);
  Timer(sc_core::sc_module_name name, Irq& irq);

  void reset();
  uint64_t next_alarm() const { return armed_ ? compare() : kNever; }
  void visit_state(spec::Archive& archive);

 private:
  static RegisterMap registers();
  void alarm_method();
  uint64_t compare() const;
  uint32_t time_low() const;
  uint32_t time_high() const;
  void latch();
  void arm();
  uint32_t control() const;
  void set_control(uint32_t value);

  Irq& irq_;
  bool armed_ = false;
  sc_core::sc_event alarm_event_{"alarm_event"};
};

}  // namespace tpu::model
