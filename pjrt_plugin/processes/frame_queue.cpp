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
    closed_ = true;
    overflowed_ = true;
    socket_->shut_down();  // its session ends
  } else {
    bytes_ += bytes.size();
    frames_.push_back(std::move(bytes));
  }
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
      if (frames_.empty() || overflowed_) {
        return;
      }
      frame = std::move(frames_.front());
      frames_.pop_front();
      bytes_ -= frame.size();
    }
    if (!socket_->send(frame)) {
      close();
      return;
    }
  }
}

void FrameQueue::close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool FrameQueue::overflowed() const {
  const base::MutexLock lock(mutex_);
  return overflowed_;
}

}  // namespace tpu::pjrt
