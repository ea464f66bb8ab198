// Frames on their way to a process. Whoever posts one never waits for the process: a thread sends
// them.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "processes/wire/frame_socket.hpp"
#include "sync/mutex.hpp"

namespace tpu::pjrt {

class FrameQueue {
 public:
  explicit FrameQueue(std::shared_ptr<FrameSocket> socket) : socket_(std::move(socket)) {}

  /// After close(), and for a process that does not read what was sent, nothing happens.
  void post(const wire::FrameT& frame);
  /// The last frame, in place of those that wait.
  void post_last(const wire::FrameT& frame);
  /// Sends what is posted, until close().
  void run();
  void close();
  /// Waits until run() is over; false: not in that time.
  bool wait_for_end(std::chrono::milliseconds limit);
  /// The process did not read.
  bool overflowed() const;

 private:
  const std::shared_ptr<FrameSocket> socket_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::vector<std::byte>> frames_ TPU_GUARDED_BY(mutex_);
  size_t bytes_ TPU_GUARDED_BY(mutex_) = 0;
  bool closed_ TPU_GUARDED_BY(mutex_) = false;
  bool overflowed_ TPU_GUARDED_BY(mutex_) = false;
  bool over_ TPU_GUARDED_BY(mutex_) = false;
};

}  // namespace tpu::pjrt
