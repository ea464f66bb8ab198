// The count and its sleepers.
#include "src/turn/host_news.hpp"

namespace tpu::driver {

void HostNews::add() {
  {
    const base::MutexLock guard(mutex_);
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
  const base::MutexLock guard(mutex_);
  return count_;
}

void HostNews::await(uint64_t seen, Deadline deadline) {
  const base::MutexLock guard(mutex_);
  while (count_ == seen) {
    if (!deadline) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, *deadline)) {
      return;
    }
  }
}

}  // namespace tpu::driver
