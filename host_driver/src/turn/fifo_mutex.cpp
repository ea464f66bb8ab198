// Turns are tickets: each caller draws one, and each unlock serves the next.
#include "src/turn/fifo_mutex.hpp"

namespace tpu::driver {

bool FifoMutex::await_turn(uint64_t ticket, Deadline until) {
  while (ticket != serving_) {
    if (!until) {
      turn_.wait(mutex_);
    } else if (!turn_.wait_until(mutex_, *until)) {
      return ticket == serving_;
    }
  }
  return true;
}

bool FifoMutex::urge_turn(uint64_t ticket, Deadline until, const std::function<void()>& urge) {
  ++urgent_;
  {
    const base::MutexUnlock open(mutex_);
    urge();
  }
  const bool in_time = await_turn(ticket, until);
  --urgent_;
  return in_time;
}

bool FifoMutex::lock(Deadline deadline, const std::function<void()>& urge, bool* waited) {
  const base::MutexLock guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  const bool free = ticket == serving_;
  if (waited != nullptr) {
    *waited = !free;
  }
  if (free) {
    return true;
  }
  const bool in_time = urge ? urge_turn(ticket, deadline, urge) : await_turn(ticket, deadline);
  if (!in_time) {
    given_up_.insert(ticket);
  }
  return in_time;
}

void FifoMutex::lock_again(Deadline patience, const std::function<void()>& urge) {
  const base::MutexLock guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  if (!await_turn(ticket, patience)) {
    urge_turn(ticket, std::nullopt, urge);
  }
  assert_held();
}

void FifoMutex::serve_next() {
  const base::MutexLock guard(mutex_);
  do {
    ++serving_;
  } while (given_up_.erase(serving_) > 0);
}

// The turn of the caller ends without a lock that the analysis could see.
void FifoMutex::unlock() {
  serve_next();
  turn_.notify_all();
}

}  // namespace tpu::driver
