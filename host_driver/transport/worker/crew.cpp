#include "transport/worker/crew.hpp"

#include <exception>

namespace tpu::driver::worker {
namespace {

// Of those that wait for others, at what they wait with.
constexpr std::chrono::milliseconds kLookAtWorker{100};

}  // namespace

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
  --running_;
  finish(rank, error);
  wait_for_others(rank);
}

// The last thing that a thread does with what all() was given.
void Crew::finish(size_t rank, const std::exception_ptr& error) {
  if (error) {
    errors_[rank] = error;
    failed_ = true;
  }
  turn_.notify_all();
  if ((error || rescue_->behind_any_end) && rescue_->give_up && !rescues_) {
    rescues_ = true;
    rescue_others();
  }
  --inside_;
  turn_.notify_all();
}

// Its call has ended, and it is not inside any more: all() need not wait until it wakes up.
void Crew::wait_for_others(size_t rank) {
  const uint64_t number = number_;
  auto look = std::chrono::steady_clock::now() + kLookAtWorker;
  while (number_ == number && running_ != 0 && !failed_) {
    if (turn_.wait_until(mutex_, look) || std::chrono::steady_clock::now() < look) {
      continue;
    }
    if (number_ == number && running_ != 0 && !failed_ && rescue_->find_end) {
      ++inside_;  // all() waits for those that run, so it is there
      ++looking_;
      std::exception_ptr error;
      try {
        find_end(rank);
      } catch (...) {
        error = std::current_exception();
      }
      --looking_;
      finish(rank, error);
    }
    look = std::chrono::steady_clock::now() + kLookAtWorker;
  }
}

void Crew::find_end(size_t rank) {
  const std::function<void(size_t)>& find_end = rescue_->find_end;
  const base::MutexUnlock unlocked(mutex_);
  find_end(rank);
}

void Crew::rescue_others() {
  const auto end = std::chrono::steady_clock::now() + rescue_->patience;
  while (running_ + looking_ != 0 && turn_.wait_until(mutex_, end)) {
  }
  if (running_ + looking_ != 0) {
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
    failed_ = rescues_ = false;
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

bool Crew::meet(size_t rank, const std::function<void()>& come, const std::function<bool()>& last) {
  const base::MutexLock lock(mutex_);
  if (failed_) {
    return false;
  }
  come();
  const uint64_t meeting = meeting_;
  if (++met_ == ranks_) {
    result_ = last();
    met_ = 0;
    ++meeting_;
    turn_.notify_all();
    return result_;
  }
  auto look = std::chrono::steady_clock::now() + kLookAtWorker;
  while (meeting_ == meeting && !failed_) {
    if (!turn_.wait_until(mutex_, look) && std::chrono::steady_clock::now() >= look) {
      if (rescue_->find_end) {
        find_end(rank);
      }
      look = std::chrono::steady_clock::now() + kLookAtWorker;
    }
  }
  return meeting_ != meeting && result_;
}

}  // namespace tpu::driver::worker
