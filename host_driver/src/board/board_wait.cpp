// Threads that wait for events, and events that the host sets.
#include <fmt/format.h>

#include <algorithm>

#include "src/access.hpp"
#include "src/board/board_impl.hpp"

namespace tpu::driver {

HostEvent BoardImpl::make_host_event() {
  const Door::Entry entry(door_);
  health_.check_usable();
  return Access::host_event(handles_.make_host_event());
}

void BoardImpl::note_host_event() { news_.add_event(); }

// Nothing of these operations on the board, and nothing left that could be sent; false: the
// deadline came first.
bool BoardImpl::run_until_idle(Deadline deadline, uint64_t last) {
  order_.send_waiting();
  const auto idle = [&] { return !operations_.busy(last) && !operations_.being_sent(last); };
  while (!health_.broken() && !idle()) {
    if (is_over(deadline)) {
      completions_.drain();
      return idle();
    }
    const uint64_t news = news_.count();
    const bool progress = pump(deadline, {.to_end = true});
    order_.send_waiting();
    if (!progress && !operations_.busy(last) && operations_.being_sent(last)) {
      turn_.leave_until(news_, news, deadline);
    }
  }
  return true;
}

bool BoardImpl::wait(EventState& event, Deadline deadline) {
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
      if (!event.open()) {
        break;
      }
      if (health_.broken()) {
        outbox_.set_event(event, health_.broken());
        break;
      }
      const bool progress =
          is_over(deadline) ? completions_.drain() : pump(deadline, {.to_end = true});
      if (progress || operations_.busy() || !event.open()) {
        continue;
      }
      if (!event.off_ring && !operations_.being_sent()) {
        outbox_.set_event(event,
                          std::make_shared<Error>(ErrorCode::kInternal,
                                                  "nothing in flight can make this event ready"));
        break;
      }
    }
    const Waiters::Waiter::Pause pause(waiter);
    news_.await(news, deadline);
  }
  return true;
}

void BoardImpl::advance(EventState& event, Deadline deadline) {
  if (forks_.in_child() || turn_.running()) {
    return;
  }
  {
    const Waiters::Waiter waiter(waiters_);
    while (event.open() && !is_over(deadline)) {
      const Door::Entry entry(door_, EntryKind::kWait, deadline);
      if (!entry.entered() || health_.broken() ||
          (event.open() && !pump(deadline, {.to_end = true}) && !operations_.busy())) {
        break;
      }
    }
  }
  if (event.open() && completion_thread_) {
    completion_thread_->begin_at_once();
  }
}

// What other threads submit meanwhile is not waited for.
bool BoardImpl::synchronize(Deadline deadline) {
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
