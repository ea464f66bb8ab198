// BoardMemory: hands out HBM of the cores and staging memory of the host, and waits for what is
// about to come back where there is none. Guarded by the board lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/health/health.hpp"
#include "src/lock/board_lock.hpp"
#include "src/memory/device_memory.hpp"
#include "src/memory/host_arena.hpp"
#include "src/operations/devices.hpp"

namespace tpu::driver {

class BoardMemory {
 public:
  struct Hooks {
    /// Lets simulated time pass until something is over. May give up the lock.
    std::function<void()> pump;
    /// Makes room in HBM of a core; false: there is nothing to be gained.
    std::function<bool(int device)> evict;
    /// Host memory that contents of HBM take; empty where they do not lie in host memory.
    std::function<std::optional<uint64_t>()> held_bytes;
  };
  BoardMemory(Devices& devices, Health& health, Hooks hooks)
      : devices_(devices), health_(health), hooks_(std::move(hooks)) {}

  void set_arena(std::shared_ptr<HostArena> arena) TPU_REQUIRES(board_lock) {
    arena_ = std::move(arena);
  }

  /// HBM of a core; programs make room for it. Throws ResourceExhausted.
  std::shared_ptr<Allocation> allocate(int device, uint64_t bytes, const std::string& label)
      TPU_REQUIRES(board_lock);
  /// Contents of HBM may lie in host memory, which comes when it is touched: throws
  /// ResourceExhausted for what it has no room for. Ranges that no longer belong to anything keep
  /// theirs for the next ones. What needs the room is `what` and `whose`, put together for the
  /// error alone.
  void need_room(uint64_t bytes, std::string_view what, std::string_view whose = {})
      TPU_REQUIRES(board_lock);

  /// Staging memory. Waits for room; what the call holds itself can fill the arena, and then a
  /// single range serves.
  std::shared_ptr<StagingRange> stage(uint64_t bytes) TPU_REQUIRES(board_lock);
  /// As stage(), without waiting.
  std::shared_ptr<StagingRange> stage_now(uint64_t bytes) TPU_REQUIRES(board_lock);
  /// Most that is staged at once of an array of any size.
  uint64_t piece_bytes() const TPU_REQUIRES(board_lock);

 private:
  Devices& devices_;
  Health& health_;
  const Hooks hooks_;
  std::shared_ptr<HostArena> arena_;
};

}  // namespace tpu::driver
