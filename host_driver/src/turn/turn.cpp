// Entry to the board, and parking it.
#include "src/turn/turn.hpp"

namespace tpu::driver {

bool Turn::enter(EntryKind kind, Deadline deadline) {
  const bool late = running_.load();
  bool waited = false;
  const bool urgent = kind != EntryKind::kWait;
  const bool entered = mutex_.lock(
      deadline, urgent ? [this] { interrupt_run(); } : std::function<void()>(), &waited);
  if (waited && late && kind == EntryKind::kCall) {
    ++late_calls_;
  }
  return entered;
}

void Turn::hand_over(Deadline deadline) {
  mutex_.unlock();
  enter_again(deadline);
}

void Turn::leave_until(HostNews& news, uint64_t seen, Deadline deadline) {
  const Left others(*this, deadline);
  news.await(seen, deadline);
}

void Turn::enter_again(Deadline patience) {
  mutex_.lock_again(patience, [this] { interrupt_run(); });
}

// Any thread: the board is parked soon, if it runs.
void Turn::interrupt_run() {
  const base::MutexLock guard(run_mutex_);
  if (running_) {
    park_();
  }
}

bool Turn::begin_run() {
  mutex_.assert_held();
  const base::MutexLock guard(run_mutex_);
  running_ = kept_ > 0 || !mutex_.urgent();
  return running_;
}

void Turn::end_run() {
  const base::MutexLock guard(run_mutex_);
  running_ = false;
}

}  // namespace tpu::driver
