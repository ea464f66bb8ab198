// Tracks: how many commands of each track of one core were sent and are done, since the firmware
// counts. A command waits for the counts that its memory needs; the firmware holds it until then.
// Guarded by the board lock.
#pragma once

#include <array>
#include <cstdint>

#include "src/lock/board_lock.hpp"
#include "src/rings/command.hpp"

namespace tpu::driver {

class Tracks {
 public:
  using Counts = std::array<uint32_t, kTracks>;

  /// Counts a command that is sent, and notes with its memory that it uses it. Returns the counts
  /// that it waits for.
  Counts send(const Command& command) TPU_REQUIRES(board_lock);
  void end(uint8_t track) TPU_REQUIRES(board_lock) { ++done_[track]; }
  /// The firmware counts afresh: what was sent before is over.
  void reset() TPU_REQUIRES(board_lock);
  /// How often it has done so.
  uint32_t resets() const TPU_REQUIRES(board_lock) { return resets_; }

  void visit_state(spec::Archive& archive);

 private:
  uint32_t resets_ = 0;
  Counts sent_{};
  Counts done_{};
};

}  // namespace tpu::driver
