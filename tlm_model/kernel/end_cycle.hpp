// The end of a cycle, for a thread of the simulation.
#pragma once

#include <systemc>

namespace tpu::model {

// Waits until everything that was notified in the present cycle has happened.
inline void end_cycle() {
  while (sc_core::sc_pending_activity_at_current_time()) {
    sc_core::wait(sc_core::SC_ZERO_TIME);
  }
}

}  // namespace tpu::model
