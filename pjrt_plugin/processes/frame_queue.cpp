#include "processes/frame_queue.hpp"

namespace tpu::pjrt {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // that wait

}  // namespace

void FrameQueue::post(const wire::FrameT& frame) {
  std::vector<std::byte> bytes = write_frame(frame);
  const base::MutexLock lock(mutex_);
  if (closed_) {
    return;
  }
  if (bytes_ + bytes.size() > kMostBytes) {
    closed_ = overflowed_ = true;
    socket_->stop_receiving();  // its session ends
  } else {
    bytes_ += bytes.size();
    frames_.push_back(std::move(bytes));
  }
  changed_.notify_all();
}

void FrameQueue::post_last(const wire::FrameT& frame) {
  std::vector<std::byte> bytes = write_frame(frame);
  const base::MutexLock lock(mutex_);
  if (over_) {
    return;
  }
  closed_ = true;
  frames_.clear();
  bytes_ = bytes.size();
  frames_.push_back(std::move(bytes));
  changed_.notify_all();
}

void FrameQueue::run() {
  for (;;) {
    std::vector<std::byte> frame;
    {
      const base::MutexLock lock(mutex_);
      while (frames_.empty() && !closed_) {
        changed_.wait(mutex_);
      }
      if (frames_.empty()) {
        break;
      }
      frame = std::move(frames_.front());
      frames_.pop_front();
      bytes_ -= frame.size();
    }
    if (!socket_->send(frame)) {
      break;
    }
  }
  const base::MutexLock lock(mutex_);
  closed_ = over_ = true;
  changed_.notify_all();
}

void FrameQueue::close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool FrameQueue::wait_for_end(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const base::MutexLock lock(mutex_);
  while (!over_) {
    if (!changed_.wait_until(mutex_, until)) {
      return over_;
    }
  }
  return true;
}

bool FrameQueue::overflowed() const {
  const base::MutexLock lock(mutex_);
  return overflowed_;
}

}  // namespace tpu::pjrt
