// Assertions of Verilated units. One that fails does not end the process, as Verilator's own
// runtime does: what it says is kept for whoever steps the unit, who asks behind the step and on
// its thread.
#pragma once

#include <cstdint>
#include <string>

class VerilatedContext;

namespace tpu::rtl {

// Before a unit with this context is stepped or destroyed: Verilator's runtime asks the thread for
// it, which has that of the unit that was made last, and may be gone.
void use_context(VerilatedContext& context);

struct FailedAssertions {
  uint64_t count = 0;
  std::string first;  // "mxu_sva.sv:53: Assertion failed in <unit>.u_sva.<name>: <text>"

  explicit operator bool() const { return count != 0; }
  // For people: the first, and how many more there were.
  std::string text() const;
};

// Those of this thread since the last call, which are then forgotten.
FailedAssertions take_failed_assertions();

}  // namespace tpu::rtl
