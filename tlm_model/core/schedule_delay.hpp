// Delays of a seeded schedule (--schedule-seed): how much later than it could an engine starts a
// command. Any such delay is legal, since semaphores and the order of a queue are all that orders
// engines. A fixed function of seed, core, queue and place of the command in its step, so that a
// seed gives the same cycles on every host.
#pragma once

#include <cstdint>

namespace tpu::model {

struct ScheduleDelay {
  // Delays are below this many cycles: more than a tile of a matmul or a transfer of some KiB
  // takes, and far less than a watchdog waits.
  static constexpr uint64_t kLimit = 8192;

  uint64_t seed = 0;  // of the step: that of the run + the step's number; 0: no delays
  uint32_t core = 0;
  uint32_t queue = 0;
  uint64_t index = 0;  // of the command among those that the core issued in this step

  // Half of the commands are not delayed; of the others, as many by less than 2, 4, 8 .. cycles.
  constexpr uint64_t cycles() const {
    uint64_t state = mixed(seed);
    state = mixed(state ^ (uint64_t{core} << 32 | queue));
    state = mixed(state ^ index);
    constexpr uint64_t kRanges = 13;  // 2^13 = kLimit
    if ((state & 1) == 0) {
      return 0;
    }
    const uint64_t range = (state >> 1) % kRanges + 1;
    return (state >> 32) & ((uint64_t{1} << range) - 1);
  }

 private:
  // The finaliser of the generator SplitMix64.
  static constexpr uint64_t mixed(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
};

}  // namespace tpu::model
