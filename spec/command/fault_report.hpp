// When a core of a pod reports a fault of its program, to its control hart and to its gang. No
// SystemC.
#pragma once

#include <cstdint>

#include "board/board_loader.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::spec {

// Cycles from the fault to the report: 0 on a board alone. In a pod the control hart of a core that
// runs a program is not disturbed for so long, which lets processes with the boards of a pod
// simulate that far before they exchange messages (docs/adr/0113-windows-from-the-program.md). It
// is short beside the time after which a gang without progress is aborted (mgmt.watchdog_us).
inline uint64_t fault_report_cycles(const BoardParams& params) {
  constexpr int64_t kReportsInWatchdog = 256;
  return board_count(params) > 1 ? static_cast<uint64_t>(params.mgmt.watchdog_us *
                                                         params.core.clock_mhz / kReportsInWatchdog)
                                 : 0;
}

}  // namespace tpu::spec
