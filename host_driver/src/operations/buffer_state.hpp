// BufferState: the buffer behind a handle. Its memory has a lock of its own (leaf lock), since
// handles go away on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/handles/event_state.hpp"
#include "src/memory/device_memory.hpp"
#include "sync/mutex.hpp"
#include "tpu/buffer.hpp"

namespace tpu::driver {

/// Consecutive elements of which part `owner` of an array holds the valid copy.
struct OwnedRun {
  uint64_t elements = 0;
  size_t owner = 0;
  bool operator==(const OwnedRun&) const = default;
};
using OwnedRuns = std::shared_ptr<const std::vector<OwnedRun>>;
/// The memory of all parts of such an array, by part.
using OwnedParts = std::shared_ptr<const std::vector<std::shared_ptr<Allocation>>>;

/// The buffer behind a handle.
struct BufferState {
  std::shared_ptr<BoardImpl> board;
  int device = 0;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t bytes = 0;
  std::shared_ptr<EventState> ready;
  OwnedRuns owned;  ///< state of a sharded update: who holds what; null: its memory has all of it

  explicit BufferState(std::shared_ptr<Allocation> range) : memory_(std::move(range)) {}

  // All from any thread, under any lock.
  bool live() const { return live_.load(); }
  /// The memory, for as long as the caller keeps it; null when the buffer is not live.
  std::shared_ptr<Allocation> hold() const;
  /// Of state of a sharded update: the memory of all parts of the array, which stays there for as
  /// long as one of its buffers is live; null when this one is not.
  OwnedParts hold_parts() const;
  void share(OwnedParts parts);
  /// A launch takes it over; give_back() when that does not start, settle() when it has started.
  void donate();
  void give_back();
  void settle();
  void discard();

 private:
  mutable base::Mutex mutex_;  // leaf lock
  std::shared_ptr<Allocation> memory_ TPU_GUARDED_BY(mutex_);
  OwnedParts parts_ TPU_GUARDED_BY(mutex_);
  std::atomic<bool> live_{true};
};

}  // namespace tpu::driver
