#include "transport/worker/crew.hpp"

#include <exception>

namespace tpu::driver::worker {

Crew::Crew(size_t ranks) : ranks_(ranks), errors_(ranks) {
  for (size_t rank = 1; rank < ranks; ++rank) {
    threads_.emplace_back([this, rank] { work(rank); });
  }
}

Crew::~Crew() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    turn_.notify_all();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Crew::work(size_t rank) {
  uint64_t done = 0;
  for (;;) {
    {
      const base::MutexLock lock(mutex_);
      while (number_ == done && !ends_) {
        turn_.wait(mutex_);
      }
      if (ends_) {
        return;
      }
      done = number_;
    }
    perform(rank);
  }
}

void Crew::perform(size_t rank) {
  const std::function<void(size_t)>* call = nullptr;
  {
    const base::MutexLock lock(mutex_);
    call = call_;
  }
  std::exception_ptr error;
  try {
    (*call)(rank);
  } catch (...) {
    error = std::current_exception();
  }
  const base::MutexLock lock(mutex_);
  errors_[rank] = error;
  const bool first = error && !failed_;
  failed_ = failed_ || error;
  --running_;
  turn_.notify_all();
  if (first && rescue_->give_up) {
    rescue_others();
  }
  --inside_;
  turn_.notify_all();
}

void Crew::rescue_others() {
  const auto end = std::chrono::steady_clock::now() + rescue_->patience;
  while (running_ != 0 && turn_.wait_until(mutex_, end)) {
  }
  if (running_ != 0) {
    const std::function<void()>& give_up = rescue_->give_up;
    const base::MutexUnlock unlocked(mutex_);  // others may meet
    give_up();
  }
}

std::vector<std::exception_ptr> Crew::all(const std::function<void(size_t)>& call,
                                          const Rescue& rescue) {
  {
    const base::MutexLock lock(mutex_);
    call_ = &call;
    rescue_ = &rescue;
    running_ = inside_ = ranks_;
    failed_ = false;
    met_ = 0;
    errors_.assign(ranks_, nullptr);
    ++number_;
    turn_.notify_all();
  }
  perform(0);
  const base::MutexLock lock(mutex_);
  while (inside_ != 0) {
    turn_.wait(mutex_);
  }
  return errors_;
}

bool Crew::meet(const std::function<void()>& come, const std::function<bool()>& last) {
  const base::MutexLock lock(mutex_);
  come();
  const uint64_t meeting = meeting_;
  if (++met_ == ranks_) {
    result_ = last();
    met_ = 0;
    ++meeting_;
    turn_.notify_all();
    return result_;
  }
  while (meeting_ == meeting && !failed_) {
    turn_.wait(mutex_);
  }
  return meeting_ != meeting && result_;
}

}  // namespace tpu::driver::worker
