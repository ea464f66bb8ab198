// Wall-clock time of launches: how long the board has been simulating without a launch on a core
// ending a step. It counts only time in which the board runs, in ticks of an eighth of the limit,
// so that the board's counters are looked at a few times a limit and not at each interrupt.
// Wall-clock time is not simulated time: the limit can end a run with an error and change nothing
// else.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace tpu::driver {

class LaunchClock {
 public:
  using Time = std::chrono::nanoseconds;

  /// Without a limit (`seconds` 0) it never asks for anything.
  LaunchClock(double seconds, size_t devices);

  double seconds() const { return seconds_; }
  /// How long the board may run until it is to be looked at; 0: as long as it likes.
  Time slice() const { return tick_ - spent_; }
  /// The board ran that long. True: a tick is over.
  bool spend(Time time);
  /// At a tick: the launch at the head of a device (0: none) and the steps that the device has
  /// ended so far. True: the same launch ended no step for as long as the limit allows `unseen`
  /// steps (more than 1 where nobody can tell how many have ended); true again when that has passed
  /// once more.
  bool look(size_t device, uint32_t launch_id, uint64_t steps, uint64_t unseen = 1);

 private:
  struct Head {
    uint32_t launch_id = 0;
    uint64_t steps = 0;
    uint64_t ticks = 0;  // without progress
  };

  double seconds_;
  Time tick_{0};
  Time spent_{0};
  std::vector<Head> heads_;
};

}  // namespace tpu::driver
