// The count and its sleepers.
#include "src/turn/host_news.hpp"

namespace tpu::driver {

void HostNews::add() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++count_;
  }
  changed_.notify_all();
}

void HostNews::add_event() {
  add();
  if (event_set_) {
    event_set_();
  }
}

uint64_t HostNews::count() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return count_;
}

void HostNews::await(uint64_t seen, Deadline deadline) {
  std::unique_lock<std::mutex> guard(mutex_);
  const auto changed = [&] { return count_ != seen; };
  if (deadline) {
    changed_.wait_until(guard, *deadline, changed);
  } else {
    changed_.wait(guard, changed);
  }
}

}  // namespace tpu::driver
