// Launches that take long: which one people are told of, how often, and what its loops have done
// since the last time. Wall-clock time counts while the board runs, as for LaunchClock; launches
// are looked at in ticks of a sixtieth of the time after which one is told of.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpu/board_report.hpp"

namespace tpu::exe {
struct ExecutableT;
}

namespace tpu::driver {

struct ProgramPlace;

class LongLaunches {
 public:
  using Time = std::chrono::nanoseconds;

  /// Told of are launches that end no step in `seconds`, and again after as long. 0: none is.
  LongLaunches(double seconds, size_t devices);

  /// How long the board may run until it is to be looked at; 0: as long as it likes.
  Time slice() const { return tick_ - spent_; }
  /// The board ran that long. True: a tick is over.
  bool spend(Time time);
  /// So long took what belongs to a tick, in which the board did not run: the next tick comes when
  /// the board has run for several times as long.
  void note_cost(Time look);
  /// At a tick of simulated time `cycle`: the launch at the head of a device (0: none) and the
  /// steps that the device has ended. True: the launch ended no step, and was not reported, for as
  /// long as `unseen` steps may take (more than 1 where nobody can tell how many have ended).
  bool look(size_t device, uint32_t launch_id, uint64_t steps, uint64_t unseen, uint64_t cycle);
  /// How long the launch at the head of the device has ended no step, and was not reported.
  Time silent(size_t device) const { return running_ - heads_[device].since; }
  /// After the looks of a tick of which some were true: one launch may be told of, as no other was
  /// for so long.
  bool may_tell();

  /// What is known of a launch from its first tick on, and of the loop whose iterations go on.
  struct News {
    double host_seconds = 0;
    uint64_t cycles = 0;
    std::optional<size_t> loop{};  ///< of those that are told, the one that the rate is of
    double iterations_per_second = 0;
  };
  /// The launch at the head of `device` is told of now, inside of these loops, outermost first; its
  /// other cores have been reported with it.
  News tell(size_t device, const std::vector<spec::LoopPlace>& loops, uint64_t cycle);

 private:
  struct Head {
    uint32_t launch_id = 0;
    uint64_t steps = 0;
    Time since{0};  // it ended a step or was told of, by `running_`
    Time first{0};  // it was seen first
    uint64_t first_cycle = 0;
    Time told{0};
    std::vector<spec::LoopPlace> told_loops;
  };

  Time interval_{0};
  Time tick_{0};
  Time spent_{0};    // of the tick
  Time running_{0};  // that the board ran in all
  std::optional<Time> told_;
  std::vector<Head> heads_;
};

/// "launch of train_step (id 3) has run for 1 min 00 s: ..", for people. `place`: of a core that
/// runs it; null: none has begun.
std::string long_launch_text(const std::string& launch, const exe::ExecutableT& program,
                             uint32_t steps, int device, const ProgramPlace* place,
                             const LongLaunches::News& news, double clock_hz);

}  // namespace tpu::driver
