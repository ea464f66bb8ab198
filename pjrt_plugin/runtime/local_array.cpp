// Arrays that are there, and arrays that come later.
#include "runtime/local_array.hpp"

#include <utility>

namespace tpu::pjrt {

void fail_event(const driver::HostEvent& host, const driver::Error& error) {
  try {
    host.fail(error);
  } catch (const driver::Error&) {
    // The board was closed, which has ended it.
  }
}

void pass_on(const driver::Event& event, const driver::HostEvent& host) {
  event.on_ready([host](const std::shared_ptr<const driver::Error>& error) {
    if (error) {
      return fail_event(host, *error);
    }
    try {
      host.set();
    } catch (const driver::Error&) {
      // As above.
    }
  });
}

driver::Event LocalArray::ready() const {
  const base::MutexLock lock(mutex_);
  return later_ ? later_->made : buffer_.ready();
}

driver::Event LocalArray::read(uint64_t first, std::span<std::byte> out) const {
  std::optional<driver::Board> board;
  {
    const base::MutexLock lock(mutex_);
    if (later_ && !error_) {
      board = later_->board;
    }
  }
  if (!board) {
    return buffer()->read_part(first, out);
  }
  const driver::HostEvent done = board->make_event();
  then([done, first, out](const driver::Buffer* buffer, const driver::Error* error) {
    if (error != nullptr) {
      return fail_event(done, *error);
    }
    try {
      pass_on(buffer->read_part(first, out), done);
    } catch (const driver::Error& refused) {
      fail_event(done, refused);
    }
  });
  return done.event();
}

uint64_t LocalArray::address() const {
  if (const auto there = buffer()) {
    return there->address();
  }
  throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                      "the array has no address before all replicas have launched the program "
                      "that makes it; wait for the array first");
}

void LocalArray::discard() const {
  driver::Buffer gone;
  {
    const base::MutexLock lock(mutex_);
    discarded_ = true;
    if (held_ > 0 || later_) {
      return;
    }
    gone = buffer_;
  }
  gone.discard();
}

std::optional<driver::Buffer> LocalArray::buffer() const {
  const base::MutexLock lock(mutex_);
  if (error_) {
    throw driver::Error(*error_);
  }
  return later_ ? std::nullopt : std::optional(buffer_);
}

bool LocalArray::settled() const {
  const base::MutexLock lock(mutex_);
  return !later_ || error_;
}

void LocalArray::then(Work work) const {
  driver::Buffer buffer;
  std::shared_ptr<const driver::Error> error;
  {
    const base::MutexLock lock(mutex_);
    if (later_ && !error_) {
      later_->work.push_back(std::move(work));
      return;
    }
    buffer = buffer_;
    error = error_;
  }
  work(error ? nullptr : &buffer, error.get());
}

// It counts as there when the work that was asked for before is done: a launch that takes the
// memory over must not pass it.
void LocalArray::end(const driver::Buffer* buffer, const driver::Error* error) const {
  for (;;) {
    std::vector<Work> work;
    {
      const base::MutexLock lock(mutex_);
      work.swap(later_->work);
      if (work.empty() && error != nullptr) {
        error_ = std::make_shared<const driver::Error>(*error);
        return;
      }
      if (work.empty()) {
        buffer_ = *buffer;
        later_.reset();
        break;
      }
    }
    for (const Work& each : work) {
      each(buffer, error);
    }
  }
  bool discarded = false;
  {
    const base::MutexLock lock(mutex_);
    discarded = discarded_ && held_ == 0;
  }
  if (discarded) {
    buffer->discard();
  }
}

void LocalArray::hold() const {
  const base::MutexLock lock(mutex_);
  ++held_;
}

void LocalArray::release() const {
  driver::Buffer gone;
  {
    const base::MutexLock lock(mutex_);
    if (--held_ > 0 || !discarded_ || later_) {
      return;
    }
    gone = buffer_;
  }
  gone.discard();
}

}  // namespace tpu::pjrt
