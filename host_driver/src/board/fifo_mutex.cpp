// Turns are tickets: each caller draws one, and each unlock serves the next.
#include "src/board/fifo_mutex.hpp"

namespace tpu::driver {

bool FifoMutex::lock(Deadline deadline, const std::function<void()>& urge, bool* waited) {
  std::unique_lock<std::mutex> guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  const auto served = [&] { return ticket == serving_; };
  if (waited != nullptr) {
    *waited = !served();
  }
  if (served()) {
    return true;
  }
  if (urge) {
    ++urgent_;
    guard.unlock();
    urge();
    guard.lock();
  }
  bool in_time = true;
  if (!deadline) {
    turn_.wait(guard, served);
  } else if (!turn_.wait_until(guard, *deadline, served)) {
    given_up_.insert(ticket);
    in_time = false;
  }
  urgent_ -= urge ? 1 : 0;
  return in_time;
}

void FifoMutex::lock_again(Deadline patience, const std::function<void()>& urge) {
  std::unique_lock<std::mutex> guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  const auto served = [&] { return ticket == serving_; };
  if (!patience) {
    turn_.wait(guard, served);
  } else if (!turn_.wait_until(guard, *patience, served)) {
    ++urgent_;
    guard.unlock();
    urge();
    guard.lock();
    turn_.wait(guard, served);
    --urgent_;
  }
}

void FifoMutex::unlock() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    do {
      ++serving_;
    } while (given_up_.erase(serving_) > 0);
  }
  turn_.notify_all();
}

}  // namespace tpu::driver
