// A thread that waits lets time pass itself, and sleeps only when nothing is in flight.
#include "src/waits/waits.hpp"

#include "src/handles/access.hpp"

namespace tpu::driver {

HostEvent Waits::make_host_event() {
  const Door::Entry entry(door_);
  health_.check_usable();
  return Access::host_event(handles_.make_host_event());
}

bool Waits::run_until_idle(Deadline deadline, uint64_t last) {
  order_.send_waiting();
  const auto idle = [&]() TPU_REQUIRES(board_lock) {
    return !operations_.busy(last) && !operations_.being_sent(last);
  };
  while (!health_.broken() && !idle()) {
    if (is_over(deadline)) {
      completions_.drain();
      return idle();
    }
    const uint64_t news = news_.count();
    const bool progress = pump_(deadline);
    order_.send_waiting();
    if (!progress && !operations_.busy(last) && operations_.being_sent(last)) {
      turn_.leave_until(news_, news, deadline);
    }
  }
  return true;
}

bool Waits::wait(EventState& event, Deadline deadline) {
  forks_.check();
  const Waiters::Waiter waiter(waiters_);
  for (bool looked = false; event.open(); looked = true) {
    if (looked && is_over(deadline)) {
      return false;
    }
    const uint64_t news = news_.count();
    {
      const Door::Entry entry(door_, EntryKind::kWait, deadline);
      if (!entry.entered()) {
        return !event.open();
      }
      if (look(event, deadline)) {
        continue;
      }
    }
    const Waiters::Waiter::Pause pause(waiter);
    news_.await(news, deadline);
  }
  return true;
}

// Lets time pass once. False: only news of the host can make the event ready.
bool Waits::look(EventState& event, Deadline deadline) {
  if (!event.open()) {
    return true;
  }
  if (health_.broken()) {
    outbox_.set_event(event, health_.broken());
    return true;
  }
  const bool progress = is_over(deadline) ? completions_.drain() : pump_(deadline);
  if (progress || operations_.busy() || !event.open()) {
    return true;
  }
  if (event.off_ring || operations_.being_sent()) {
    return false;
  }
  outbox_.set_event(event, std::make_shared<Error>(ErrorCode::kInternal,
                                                   "nothing in flight can make this event ready"));
  return true;
}

void Waits::advance(EventState& event, Deadline deadline) {
  if (forks_.in_child() || turn_.running()) {
    return;
  }
  {
    const Waiters::Waiter waiter(waiters_);
    while (event.open() && !is_over(deadline)) {
      const Door::Entry entry(door_, EntryKind::kWait, deadline);
      if (!entry.entered() || health_.broken() ||
          (event.open() && !pump_(deadline) && !operations_.busy())) {
        break;
      }
    }
  }
  if (event.open() && thread_) {
    thread_->begin_at_once();
  }
}

// What other threads submit meanwhile is not waited for.
bool Waits::synchronize(Deadline deadline) {
  forks_.check();
  const Waiters::Waiter waiter(waiters_);
  uint64_t last = 0;
  for (;;) {
    const uint64_t news = news_.count();
    {
      const Door::Entry entry(door_, EntryKind::kCall, deadline);
      if (!entry.entered()) {
        return false;
      }
      health_.check_usable();
      last = last == 0 ? operations_.last() : last;
      const bool idle = run_until_idle(deadline, last);
      health_.check_unbroken();
      if (idle && !order_.any(last)) {
        return true;
      }
    }
    if (is_over(deadline)) {
      return false;
    }
    const Waiters::Waiter::Pause pause(waiter);
    news_.await(news, deadline);
  }
}

}  // namespace tpu::driver
