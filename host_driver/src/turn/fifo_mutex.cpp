// Turns are tickets: each caller draws one, and each unlock serves the next.
#include "src/turn/fifo_mutex.hpp"

namespace tpu::driver {

bool FifoMutex::await_turn(Guard& guard, uint64_t ticket, Deadline until) {
  const auto served = [&] { return ticket == serving_; };
  if (until) {
    return turn_.wait_until(guard, *until, served);
  }
  turn_.wait(guard, served);
  return true;
}

bool FifoMutex::urge_turn(Guard& guard, uint64_t ticket, Deadline until,
                          const std::function<void()>& urge) {
  ++urgent_;
  guard.unlock();
  urge();
  guard.lock();
  const bool in_time = await_turn(guard, ticket, until);
  --urgent_;
  return in_time;
}

bool FifoMutex::lock(Deadline deadline, const std::function<void()>& urge, bool* waited) {
  Guard guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  const bool free = ticket == serving_;
  if (waited != nullptr) {
    *waited = !free;
  }
  if (free) {
    return true;
  }
  const bool in_time =
      urge ? urge_turn(guard, ticket, deadline, urge) : await_turn(guard, ticket, deadline);
  if (!in_time) {
    given_up_.insert(ticket);
  }
  return in_time;
}

void FifoMutex::lock_again(Deadline patience, const std::function<void()>& urge) {
  Guard guard(mutex_);
  const uint64_t ticket = next_ticket_++;
  if (!await_turn(guard, ticket, patience)) {
    urge_turn(guard, ticket, std::nullopt, urge);
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
