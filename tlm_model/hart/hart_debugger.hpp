// Who may stop the control harts: told when one stands, asked whether one may run. Plain interface
// between the harts in simulated time and a debugger.
#pragma once

#include <cstdint>

#include "hart/hart.hpp"

namespace tpu::model {

enum class HartLeave : uint8_t {
  kRun,
  kStep,  // one instruction, then it stands again
  kHold,  // it stands while simulated time may pass
};

class HartDebugger {
 public:
  virtual ~HartDebugger() = default;
  virtual HartLeave leave(uint32_t core) const = 0;
  // The hart stands: at a breakpoint, behind a watched access, behind a step (kBudget), or dead
  // (kTrap). Simulated time stands until the call returns.
  virtual void hart_stands(uint32_t core, HartStop why) = 0;
};

}  // namespace tpu::model
