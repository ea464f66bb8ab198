// Frames of a client that came while the chip waited for a reply to its own request.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "transport/vfio/frame_socket.hpp"

namespace tpu::driver::vfio {

class FrameQueue {
 public:
  static constexpr size_t kMostFrames = 4096;
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of payloads
  static constexpr size_t kMostDescriptors = 64;

  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }

  /// False: there is no room for it.
  [[nodiscard]] bool push(Frame frame) {
    bytes_ += frame.payload.size();
    descriptors_ += frame.descriptors.size();
    frames_.push_back(std::move(frame));
    return frames_.size() <= kMostFrames && bytes_ <= kMostBytes &&
           descriptors_ <= kMostDescriptors;
  }

  /// The queue is not empty.
  Frame pop() {
    Frame frame = std::move(frames_.front());
    frames_.pop_front();
    bytes_ -= frame.payload.size();
    descriptors_ -= frame.descriptors.size();
    return frame;
  }

  void clear() { *this = FrameQueue(); }

 private:
  std::deque<Frame> frames_;
  size_t bytes_ = 0;
  size_t descriptors_ = 0;
};

}  // namespace tpu::driver::vfio
