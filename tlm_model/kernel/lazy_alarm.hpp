// Alarm that is set often and goes off seldom. SystemC keeps a cancelled notification in its time
// queue until its time has come, so that one of milliseconds that each launch sets anew would fill
// the queue, which all events wait in. This one has at most one notification under way: it goes
// off early and is sent on.
#pragma once

#include <cstdint>
#include <systemc>

#include "kernel/cycles.hpp"

namespace tpu::model {

class LazyAlarm {
 public:
  explicit LazyAlarm(const char* name) : event_(name) {}

  // What the process that waits for the alarm is sensitive to; it asks due() first.
  const sc_core::sc_event& event() const { return event_; }

  void set(uint64_t delay_cycles) {
    at_ = now_cycles() + delay_cycles;
    send();
  }
  void cancel() { at_ = kNever; }
  uint64_t at() const { return at_; }  // kNever: it is not set

  // When the event comes: true when the alarm's cycle is there, once.
  bool due() {
    sent_for_ = kNever;
    if (at_ == kNever) {
      return false;
    }
    if (now_cycles() < at_) {
      send();
      return false;
    }
    at_ = kNever;
    return true;
  }

 private:
  void send() {
    if (at_ < sent_for_) {
      sent_for_ = at_;
      event_.notify(from_cycles(at_ - now_cycles()));
    }
  }

  sc_core::sc_event event_;
  uint64_t at_ = kNever;
  uint64_t sent_for_ = kNever;  // the cycle of the notification that is under way
};

}  // namespace tpu::model
