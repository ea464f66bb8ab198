// Timer: registers and alarm.
#include "mgmt/timer.hpp"

#include "kernel/cycles.hpp"
#include "tpu/spec/irq_regs.hpp"
#include "tpu/spec/timer_regs.hpp"
#include "tpu/spec/timer_table.hpp"

namespace tpu::model {

RegisterMap Timer::registers() {
  static constexpr auto kMap =
      make_register_map(spec::timer::kTable, {on_value<&Timer::time_low>(spec::timer::kTimeLo),
                                              on_read<&Timer::latch>(spec::timer::kTimeLo),
                                              on_peek<&Timer::time_high>(spec::timer::kTimeHi),
                                              on_write<&Timer::arm>(spec::timer::kCmpHi),
                                              on_value<&Timer::control>(spec::timer::kCtrl),
                                              on_write<&Timer::set_control>(spec::timer::kCtrl)});
  return kMap.view();
}

Timer::Timer(sc_core::sc_module_name name, Irq& irq)
    : sc_module(name), RegisterBlock(registers()), irq_(irq) {
  SC_METHOD(alarm_method);
  sensitive << alarm_event_;
  dont_initialize();
}

void Timer::reset() {
  armed_ = false;
  reset_registers();
  alarm_event_.cancel();
}

void Timer::visit_state(spec::Archive& archive) {
  visit_registers(archive);
  archive(armed_);
  if (archive.loading() && armed_) {
    arm();
  }
}

void Timer::arm() {
  armed_ = true;
  alarm_event_.cancel();
  const uint64_t now = now_cycles();
  alarm_event_.notify(from_cycles(compare() > now ? compare() - now : 0));
}

void Timer::alarm_method() {
  if (armed_ && now_cycles() >= compare()) {
    armed_ = false;
    irq_.raise(spec::irq::kTimer);
  }
}

uint64_t Timer::compare() const { return wide_reg(spec::timer::kCmpLo, spec::timer::kCmpHi); }

// The time itself: a debugger sees both halves of the present.
uint32_t Timer::time_low() const { return static_cast<uint32_t>(now_cycles()); }
uint32_t Timer::time_high() const { return static_cast<uint32_t>(now_cycles() >> 32); }

void Timer::latch() { cell(spec::timer::kTimeHi) = time_high(); }

uint32_t Timer::control() const { return armed_ ? spec::timer::kCtrlArmedMask : 0; }

void Timer::set_control(uint32_t value) {
  if ((value & spec::timer::kCtrlArmedMask) == 0) {
    armed_ = false;
    alarm_event_.cancel();
  }
}

}  // namespace tpu::model
