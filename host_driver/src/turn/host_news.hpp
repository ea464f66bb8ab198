// HostNews: a count of changes that no interrupt of the board tells: events that the host sets,
// operations that were sent, a board that was closed. Threads read the count while they look, and
// sleep until it has changed. It has a lock of its own (leaf lock), so that they sleep without the
// board lock and miss nothing in between.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "src/turn/deadline.hpp"
#include "sync/mutex.hpp"

namespace tpu::driver {

class HostNews {
 public:
  /// `event_set` is called by any thread when an event of the host's own was set.
  explicit HostNews(std::function<void()> event_set = nullptr) : event_set_(std::move(event_set)) {}

  /// One more change: wakes all who sleep.
  void add();
  /// The same, of an event that was set: what came after it may be sent.
  void add_event();
  uint64_t count();
  /// Until the count differs from `seen`, or the deadline comes.
  void await(uint64_t seen, Deadline deadline);

 private:
  const std::function<void()> event_set_;
  base::Mutex mutex_;
  base::CondVar changed_;
  uint64_t count_ TPU_GUARDED_BY(mutex_) = 0;
};

}  // namespace tpu::driver
