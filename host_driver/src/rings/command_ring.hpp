// CommandRing: the rings of one core in host memory: commands that were sent to it, completions
// that it wrote. It knows commands and what is in flight, and nothing of the operations that they
// are of. Guarded by the board lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/lock/board_lock.hpp"
#include "src/rings/command.hpp"
#include "src/rings/tracks.hpp"

namespace tpu::driver {

class CommandRing {
 public:
  /// Memory of a ring, and its address for the board.
  struct Memory {
    uint64_t iova = 0;
    std::span<std::byte> bytes;
  };
  static constexpr uint64_t kCommandBytes = uint64_t{TPU_CMD_ENTRY_BYTES} << TPU_CMD_RING_LOG2;
  static constexpr uint64_t kCompletionBytes = uint64_t{TPU_CPL_ENTRY_BYTES} << TPU_CPL_RING_LOG2;

  CommandRing(Memory commands, Memory completions)
      : commands_(commands), completions_(completions) {}
  const Memory& commands() const TPU_REQUIRES(board_lock) { return commands_; }
  const Memory& completions() const TPU_REQUIRES(board_lock) { return completions_; }

  /// Of a core that boots: nothing is on the rings.
  void clear() TPU_REQUIRES(board_lock);
  /// How often it was cleared.
  uint32_t boots() const TPU_REQUIRES(board_lock) { return boots_; }
  /// The core is in this epoch; commands of older ones are over.
  void begin_epoch(uint32_t epoch) TPU_REQUIRES(board_lock) { epoch_ = epoch; }
  uint32_t epoch() const TPU_REQUIRES(board_lock) { return epoch_; }
  /// The core goes on in the next epoch, and counts its tracks afresh.
  void resume() TPU_REQUIRES(board_lock);
  uint32_t resets() const TPU_REQUIRES(board_lock) { return tracks_.resets(); }

  bool has_room(bool launch, size_t commands = 1) const TPU_REQUIRES(board_lock);
  /// A place for a command that enter() writes, which cannot fail then.
  void make_place() TPU_REQUIRES(board_lock) { window_.push_back(nullptr); }
  void drop_place() TPU_REQUIRES(board_lock) { window_.pop_back(); }
  /// Writes the command to the ring, in the place that was made last.
  void enter(const std::shared_ptr<Command>& command) TPU_REQUIRES(board_lock);
  /// Commands ever written, which is what the doorbell says.
  uint32_t tail() const TPU_REQUIRES(board_lock) { return tail_; }
  /// The value to ring with; empty when the core has been told.
  std::optional<uint32_t> ring() TPU_REQUIRES(board_lock);

  /// What stands at the head of the completion ring; false: nothing yet.
  bool next(tpu_completion_t& completion) const TPU_REQUIRES(board_lock);
  /// The command in flight that the record is of; null: the record is wrong as `wrong` says, its
  /// bytes, or it is of no such command.
  const Command* command_of(const tpu_completion_t& completion, std::string& wrong) const
      TPU_REQUIRES(board_lock);
  /// Takes it off. Its command is in flight still if the record says that more comes.
  std::shared_ptr<Command> accept(const tpu_completion_t& completion) TPU_REQUIRES(board_lock);
  /// Records ever taken.
  uint32_t taken() const TPU_REQUIRES(board_lock) { return taken_; }

  /// Commands in flight.
  size_t open() const TPU_REQUIRES(board_lock) { return open_; }
  /// Null when the command is not in flight.
  const Command* in_flight(uint32_t seq) const TPU_REQUIRES(board_lock);
  /// The oldest command in flight for which `wanted` is true; null without one.
  template <typename Wanted>
  const Command* first(const Wanted& wanted) const TPU_REQUIRES(board_lock) {
    for (const auto& command : window_) {
      if (command && wanted(*command)) {
        return command.get();
      }
    }
    return nullptr;
  }
  /// Takes all that is in flight off, in the order of the ring.
  std::vector<std::shared_ptr<Command>> take_all() TPU_REQUIRES(board_lock);

  /// Of a core with nothing on its rings.
  void visit_counts(spec::Archive& archive) TPU_REQUIRES(board_lock);
  void visit_memory(spec::Archive& archive) TPU_REQUIRES(board_lock);

 private:
  uint32_t place_of(uint32_t seq) const TPU_REQUIRES(board_lock) {
    return seq - (tail_ - static_cast<uint32_t>(window_.size()));
  }

  Memory commands_;
  Memory completions_;
  uint32_t tail_ = 0;   // commands ever written
  uint32_t rung_ = 0;   // value of the last doorbell
  uint32_t taken_ = 0;  // completions ever read
  uint32_t epoch_ = 0;
  uint32_t boots_ = 0;
  Tracks tracks_;
  std::deque<std::shared_ptr<Command>> window_;  // by seq from tail - size on; null: completed
  size_t open_ = 0;                              // not completed
  size_t launches_ = 0;                          // of them
};

}  // namespace tpu::driver
