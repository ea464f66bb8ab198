// Counts what is in flight on the board: started commands, transfers, running sequencers and harts,
// packets, host calls. Timers, watchdogs and waiting queues do not count. Zero means quiescent: no
// event but a timer can change anything, so a core that is not done is in a deadlock or waits for
// the host.
#pragma once

#include <cstdint>
#include <systemc>

namespace tpu::model {

class Activity {
 public:
  // Both are called in the kernel thread. quiet_event is notified in the next delta cycle when the
  // count reaches zero; the count may have risen again by then, so a listener looks at quiet() once
  // more.
  void begin() { ++count_; }
  void end() {
    if (--count_ == 0) {
      quiet_event_.notify(sc_core::SC_ZERO_TIME);
    }
  }
  bool quiet() const { return count_ == 0; }
  int64_t count() const { return count_; }
  const sc_core::sc_event& quiet_event() const { return quiet_event_; }

 private:
  int64_t count_ = 0;
  sc_core::sc_event quiet_event_{"quiet_event"};
};

// Begin and end of one party, idempotent.
class ActivityFlag {
 public:
  explicit ActivityFlag(Activity& activity) : activity_(activity) {}
  void set(bool active) {
    if (active != active_) {
      active_ = active;
      active ? activity_.begin() : activity_.end();
    }
  }
  bool active() const { return active_; }

 private:
  Activity& activity_;
  bool active_ = false;
};

}  // namespace tpu::model
