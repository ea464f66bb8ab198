// The ports of a Verilog matrix unit, cycle by cycle, for who wants to see them.
#pragma once

#include <cstdint>
#include <functional>

namespace tpu::model {

// What passes the ports of the array in one cycle: inputs are null where nothing enters, `y` where
// nothing leaves.
struct MxuPorts {
  uint64_t cycle = 0;  // of the job's time base
  uint64_t tile = 0;   // whose rows enter
  uint32_t op_id = 0;
  bool swap = false;
  bool busy = false;
  const uint32_t* w = nullptr;    // shape().cols words
  const uint32_t* x = nullptr;    // shape().rows / 2 words
  const uint32_t* acc = nullptr;  // shape().cols words; null with an `x`: +0
  const uint32_t* y = nullptr;    // shape().cols words
};
// Called in the thread that runs the job, cycle by cycle, and once more behind its last one.
using MxuPortObserver = std::function<void(const MxuPorts&)>;

}  // namespace tpu::model
