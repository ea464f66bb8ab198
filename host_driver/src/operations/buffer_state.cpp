// The life of a buffer's memory: held, donated, given back, discarded.
#include "src/operations/buffer_state.hpp"

namespace tpu::driver {

std::shared_ptr<Allocation> BufferState::hold() const {
  const base::MutexLock guard(mutex_);
  return live_ ? memory_ : nullptr;
}

OwnedParts BufferState::hold_parts() const {
  const base::MutexLock guard(mutex_);
  return live_ ? parts_ : nullptr;
}

void BufferState::share(OwnedParts parts) {
  const base::MutexLock guard(mutex_);
  parts_ = std::move(parts);
}

void BufferState::donate() { live_ = false; }

void BufferState::give_back() {
  const base::MutexLock guard(mutex_);
  live_ = memory_ != nullptr;
}

void BufferState::settle() {
  const base::MutexLock guard(mutex_);
  memory_.reset();
  parts_.reset();
}

void BufferState::discard() {
  const base::MutexLock guard(mutex_);
  if (live_.exchange(false)) {
    memory_.reset();
    parts_.reset();
  }
}

}  // namespace tpu::driver
