// BoardRun: lets simulated time pass, from one interrupt to the next. It parks the board for calls
// of other threads, for deadlines and for the time limit of launches, and changes nothing by that:
// what the driver does next must not depend on wall-clock time. Guarded by the board lock, which it
// may hand over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "src/completions/completions.hpp"
#include "src/events/outbox.hpp"
#include "src/feeds/feeds.hpp"
#include "src/lock/board_lock.hpp"
#include "src/pump/launch_reporter.hpp"
#include "src/pump/time_limit.hpp"
#include "src/turn/turn.hpp"

namespace tpu::driver {

class BoardRun {
 public:
  struct Hooks {
    std::function<void(const ErrorPtr&)> break_board;
    /// Takes the launches that are in flight off the board.
    std::function<void()> abort_launches;
    /// Chips have raised the interrupt of their own; vectors by chip.
    std::function<void(std::span<const uint32_t>)> chip_events;
  };
  /// `transport`: null when the board is closed.
  BoardRun(const std::unique_ptr<Transport>& transport, Turn& turn, const Health& health,
           Devices& devices, CoreRegisters& registers, const Feeds& feeds, Completions& completions,
           Harts& harts, Outbox& outbox, TimeLimit& limit, Hooks hooks)
      : transport_(transport),
        turn_(turn),
        health_(health),
        devices_(devices),
        registers_(registers),
        feeds_(feeds),
        completions_(completions),
        harts_(harts),
        outbox_(outbox),
        limit_(limit),
        hooks_(std::move(hooks)) {}

  void set_reporter(LaunchReporter reporter) TPU_REQUIRES(board_lock) {
    reporter_ = std::move(reporter);
  }

  /// One park of the board: at its next interrupt, or at the deadline of a caller who does not wait
  /// longer. `to_end`: operations are waited for, not room. False: it is quiescent, or broke.
  bool run(Deadline deadline = std::nullopt, bool to_end = false) TPU_REQUIRES(board_lock);
  /// One park of a board whose host is busy until that cycle: it does not stop when nothing is in
  /// flight.
  void run_busy(uint64_t cycle) TPU_REQUIRES(board_lock);

 private:
  RunOutcome run_timed(Deadline deadline, bool to_end) TPU_REQUIRES(board_lock);
  RunOutcome run_once(bool to_end) TPU_REQUIRES(board_lock);
  static bool tells_death(std::span<const uint32_t> msi);

  const std::unique_ptr<Transport>& transport_;
  Turn& turn_;
  const Health& health_;
  Devices& devices_;
  CoreRegisters& registers_;
  const Feeds& feeds_;
  Completions& completions_;
  Harts& harts_;
  Outbox& outbox_;
  TimeLimit& limit_;
  const Hooks hooks_;
  LaunchReporter reporter_;
  std::optional<uint64_t> busy_until_;
};

}  // namespace tpu::driver
