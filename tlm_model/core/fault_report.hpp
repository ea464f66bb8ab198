// Report of a fault to the control hart: in the cycle of the fault, or some cycles later
// (spec/command/fault_report.hpp). What is not reported yet counts as in flight.
#pragma once

#include <cstdint>
#include <systemc>

#include "kernel/activity.hpp"
#include "kernel/cycles.hpp"

namespace tpu::model {

class FaultReport {
 public:
  FaultReport(uint64_t cycles, Activity& activity) : cycles_(cycles), pending_(activity) {}

  uint64_t cycles() const { return cycles_; }
  bool later() const { return cycles_ != 0; }
  bool pending() const { return pending_.active(); }
  // Notified when it is due.
  const sc_core::sc_event& event() const { return event_; }
  // Of the first fault; later ones go with it.
  void begin() {
    if (!pending()) {
      pending_.set(true);
      due_ = now_cycles() + cycles_;
      event_.notify(from_cycles(cycles_));
    }
  }
  // True, once: it is due.
  bool take_due() {
    const bool due = pending() && now_cycles() >= due_;
    if (due) {
      pending_.set(false);
    }
    return due;
  }
  // The core is reset.
  void forget() {
    pending_.set(false);
    event_.cancel();
  }

 private:
  const uint64_t cycles_;
  uint64_t due_ = 0;
  ActivityFlag pending_;
  sc_core::sc_event event_{"report_event"};
};

}  // namespace tpu::model
