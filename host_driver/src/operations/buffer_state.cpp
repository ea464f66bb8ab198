// The life of a buffer's memory: held, donated, given back, discarded.
#include "src/operations/buffer_state.hpp"

namespace tpu::driver {

std::shared_ptr<Allocation> BufferState::hold() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return live_ ? memory_ : nullptr;
}

OwnedParts BufferState::hold_parts() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return live_ ? parts_ : nullptr;
}

void BufferState::share(OwnedParts parts) {
  const std::lock_guard<std::mutex> guard(mutex_);
  parts_ = std::move(parts);
}

void BufferState::donate() { live_ = false; }

void BufferState::give_back() {
  const std::lock_guard<std::mutex> guard(mutex_);
  live_ = memory_ != nullptr;
}

void BufferState::settle() {
  const std::lock_guard<std::mutex> guard(mutex_);
  memory_.reset();
  parts_.reset();
}

void BufferState::discard() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (live_.exchange(false)) {
    memory_.reset();
    parts_.reset();
  }
}

}  // namespace tpu::driver
