// TimeLimit: takes a launch off the board that ended no step for as long as the limit allows, of
// the host's own clock. It decides only whether a run ends with an error. Guarded by the board
// lock.
#pragma once

#include <functional>
#include <memory>

#include "src/harts/harts.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/devices.hpp"
#include "src/pump/launch_clock.hpp"
#include "src/recovery/launch_judge.hpp"
#include "src/rings/core_registers.hpp"

namespace tpu::driver {

class TimeLimit {
 public:
  /// `transport`: null when the board is closed.
  TimeLimit(const std::unique_ptr<Transport>& transport, Devices& devices, CoreRegisters& registers,
            Harts& harts, TellHang tell_hang, std::function<void(const ErrorPtr&)> break_board)
      : transport_(transport),
        devices_(devices),
        registers_(registers),
        harts_(harts),
        tell_hang_(std::move(tell_hang)),
        break_board_(std::move(break_board)) {}

  void set_clock(LaunchClock clock) TPU_REQUIRES(board_lock) { clock_ = std::move(clock); }
  /// 0: no limit.
  double seconds() const TPU_REQUIRES(board_lock) { return clock_.seconds(); }
  /// How long the board may run until spend() is to be called; 0: as long as it likes.
  LaunchClock::Time slice() const TPU_REQUIRES(board_lock) { return clock_.slice(); }
  /// The board ran that long.
  void spend(LaunchClock::Time time) TPU_REQUIRES(board_lock);

 private:
  void check() TPU_REQUIRES(board_lock);
  void end(const Device& device, Operation& op) TPU_REQUIRES(board_lock);

  const std::unique_ptr<Transport>& transport_;
  Devices& devices_;
  CoreRegisters& registers_;
  Harts& harts_;
  const TellHang tell_hang_;
  const std::function<void(const ErrorPtr&)> break_board_;
  LaunchClock clock_{0, 0};
};

}  // namespace tpu::driver
