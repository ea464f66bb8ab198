// What OpTimesSink counts of one operation of a launch.
#pragma once

#include <cstdint>

namespace tpu::model {

struct OpTime {
  static constexpr uint32_t kNoOp = UINT32_MAX;  // op_id of cycles in which nothing is under way

  uint32_t op_id = 0;
  uint64_t cycles = 0;       // that belong to it
  uint64_t busy_cycles = 0;  // with at least one of its commands under way
  uint64_t commands = 0;
};

}  // namespace tpu::model
