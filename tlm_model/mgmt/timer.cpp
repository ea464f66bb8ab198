// Timer: registers and alarm.
#include "mgmt/timer.hpp"

#include "kernel/cycles.hpp"
#include "tpu/spec/irq_regs.hpp"
#include "tpu/spec/timer_regs.hpp"

namespace tpu::model {

Timer::Timer(sc_core::sc_module_name name, Irq& irq) : sc_module(name), irq_(irq) {
  SC_METHOD(alarm_method);
  sensitive << alarm_event_;
  dont_initialize();
}

void Timer::reset() {
  armed_ = false;
  compare_ = 0;
  alarm_event_.cancel();
}

void Timer::visit_state(spec::Archive& archive) {
  archive(time_high_, compare_, armed_);
  if (archive.loading() && armed_) {
    arm();
  }
}

void Timer::arm() {
  armed_ = true;
  alarm_event_.cancel();
  const uint64_t now = now_cycles();
  alarm_event_.notify(from_cycles(compare_ > now ? compare_ - now : 0));
}

void Timer::alarm_method() {
  if (armed_ && now_cycles() >= compare_) {
    armed_ = false;
    irq_.raise(spec::irq::kTimer);
  }
}

bool Timer::read(uint32_t offset, uint32_t& value) {
  switch (offset) {
    case spec::timer::kTimeLo:
      time_high_ = static_cast<uint32_t>(now_cycles() >> 32);
      value = static_cast<uint32_t>(now_cycles());
      return true;
    case spec::timer::kTimeHi:
      value = time_high_;
      return true;
    case spec::timer::kCmpLo:
      value = static_cast<uint32_t>(compare_);
      return true;
    case spec::timer::kCmpHi:
      value = static_cast<uint32_t>(compare_ >> 32);
      return true;
    case spec::timer::kCtrl:
      value = armed_ ? spec::timer::kCtrlArmedMask : 0;
      return true;
    default:
      return false;
  }
}

// The time itself, both halves of the present.
bool Timer::peek(uint32_t offset, uint32_t& value) {
  if (offset == spec::timer::kTimeLo || offset == spec::timer::kTimeHi) {
    value = static_cast<uint32_t>(now_cycles() >> (offset == spec::timer::kTimeHi ? 32 : 0));
    return true;
  }
  return read(offset, value);
}

bool Timer::write(uint32_t offset, uint32_t value) {
  switch (offset) {
    case spec::timer::kCmpLo:
      compare_ = (compare_ & ~uint64_t{0xFFFFFFFF}) | value;
      return true;
    case spec::timer::kCmpHi:
      compare_ = (compare_ & 0xFFFFFFFF) | static_cast<uint64_t>(value) << 32;
      arm();
      return true;
    case spec::timer::kCtrl:
      if ((value & spec::timer::kCtrlArmedMask) == 0) {
        armed_ = false;
        alarm_event_.cancel();
      }
      return true;
    default:
      return false;
  }
}

}  // namespace tpu::model
