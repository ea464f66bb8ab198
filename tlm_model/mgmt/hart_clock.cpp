// Clock of the control harts: one notification for all that wake next.
#include "mgmt/hart_clock.hpp"

#include <algorithm>

#include "kernel/cycles.hpp"

namespace tpu::model {

HartClock::HartClock(sc_core::sc_module_name name) : sc_module(name) {
  SC_METHOD(tick_method);
  sensitive << tick_event_;
  dont_initialize();
}

void HartClock::wake_at(uint64_t cycle, uint32_t number, Sleeper& sleeper) {
  entries_.push_back({cycle, number, &sleeper});
  std::push_heap(entries_.begin(), entries_.end());
  send();
}

void HartClock::tick_method() {
  const uint64_t now = now_cycles();
  sent_for_ = now;  // nothing is sent before all have been woken
  while (!entries_.empty() && entries_.front().at <= now) {
    std::pop_heap(entries_.begin(), entries_.end());
    Sleeper* const sleeper = entries_.back().sleeper;
    entries_.pop_back();
    sleeper->wake();
  }
  sent_for_ = kNever;
  send();
}

void HartClock::send() {
  if (!entries_.empty() && entries_.front().at < sent_for_) {
    sent_for_ = entries_.front().at;
    tick_event_.notify(from_cycles(sent_for_ - now_cycles()));
  }
}

}  // namespace tpu::model
