// Waiting: of threads for events, and of operations at the host for events that the rings do not
// order (events of the host's own, copies from other cores, and operations that wait here
// themselves). These are sent in the order of the calls, by the thread that waits or submits next;
// what uses memory that an earlier one is going to use waits behind it.
#include <fmt/format.h>

#include <algorithm>

#include "src/access.hpp"
#include "src/board/board_impl.hpp"

namespace tpu::driver {
namespace {

using Uses = std::vector<std::shared_ptr<Allocation>>;

bool share(const Uses& a, const Uses& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& range) {
    return std::find(b.begin(), b.end(), range) != b.end();
  });
}

// One of them writes what the other uses.
bool conflict(const Operation& a, const Operation& b) {
  return share(a.writes, b.writes) || share(a.writes, b.reads) || share(a.reads, b.writes);
}

}  // namespace

HostEvent BoardImpl::make_host_event() {
  const Entry entry(*this);
  health_.check_usable();
  auto event = make_event();
  event->off_ring = true;
  std::erase_if(host_events_, [](const auto& weak) { return weak.expired(); });
  host_events_.push_back(event);
  return Access::host_event(std::move(event));
}

void BoardImpl::note_host_event() {
  news_.add();
  if (const auto& thread = completion_thread_) {
    thread->call_is_over();  // what came after the event may be sent
  }
}

// Without the lock, which others have meanwhile: until there are more news than `news`.
void BoardImpl::leave_until(uint64_t news, Deadline deadline) {
  const Turn::Left others(turn_, deadline);
  news_.await(news, deadline);
}

void BoardImpl::check_after(const std::vector<Event>& after) const {
  for (const Event& event : after) {
    const auto& state = Access::state(event);
    if (state->open() && state->board.lock().get() != this) {
      throw Error(ErrorCode::kInvalidArgument, "an event to come after belongs to another board");
    }
  }
}

// What the call wants to come behind.
void BoardImpl::depend(Operation& op, const std::vector<Event>& after) const {
  check_after(after);
  for (const Event& event : after) {
    const auto& state = Access::state(event);
    op.inputs.push_back(state);
    op.after.push_back(state);
  }
}

// `earlier`: how many of those that wait come before it.
bool BoardImpl::waits_at_host(const Operation& op, size_t earlier) const {
  const auto open = [](const auto& event) { return event->open(); };
  const auto off_ring = [](const auto& event) { return event->open() && event->off_ring; };
  return std::any_of(op.after.begin(), op.after.end(), open) ||
         std::any_of(op.inputs.begin(), op.inputs.end(), off_ring) ||
         std::any_of(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(earlier),
                     [&](const Waiting& before) { return conflict(*before.op, op); }) ||
         std::any_of(sending_.begin(), sending_.end(), [&](const Operation* before) {
           return before->number < op.number && conflict(*before, op);
         });
}

// Calls `send`, which adds the operation's commands, at once or when nothing is in front of it. Its
// place among the operations is that of this call: what other threads submit while it waits for
// room comes behind it.
void BoardImpl::send_in_order(const std::shared_ptr<Operation>& op, std::function<void()> send) {
  op->number = ++op_count_;
  const Sending place(*this, *op);
  send_waiting();
  if (waits_at_host(*op, waiting_.size()) && !health_.broken()) {
    op->event->off_ring = true;
    waiting_.push_back({op, std::move(send)});
    return;
  }
  send_now(op, send);
}

void BoardImpl::send_now(const std::shared_ptr<Operation>& op, const std::function<void()>& send) {
  const Sending place(*this, *op);
  op->event->off_ring = op->crosses;
  const auto give_up = [&](const ErrorPtr& error) {
    op->error = op->error ? op->error : error;
    if (op->launch()) {
      finish(*op, op->error);
    } else {
      abandon(op);
    }
  };
  try {
    send();
  } catch (const Error& error) {
    give_up(std::make_shared<Error>(error));
    throw;
  } catch (...) {
    give_up(given_up());
    throw;
  }
  op->reads.clear();
  op->writes.clear();
  seal(op);
}

// Sends what waits no more. Sending may wait for room, which comes back here: then the outer call
// goes on with what is left. Who answers a host call must not wait: he leaves it to others.
void BoardImpl::send_waiting() {
  if (sending_waiting_ || waiting_.empty() || answers_here()) {
    return;
  }
  sending_waiting_ = true;
  for (size_t i = 0; i < waiting_.size();) {
    const Operation& next = *waiting_[i].op;
    ErrorPtr error = health_.broken()                       ? health_.broken()
                     : next.launch() && health_.cancelled() ? health_.cancelled()
                                                            : nullptr;
    error = error ? error : next.failed_input();
    if (!error && waits_at_host(next, i)) {
      ++i;
      continue;
    }
    const Waiting taken = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    if (error) {
      finish(*taken.op, error);
      continue;
    }
    try {
      send_now(taken.op, taken.send);
    } catch (const std::exception&) {
      // Its event tells.
    }
  }
  sending_waiting_ = false;
}

// With operations up to number `last`.
bool BoardImpl::busy(uint64_t last) const {
  return devices_.in_flight(last) || !retry_.empty() || !failed_launches_.empty();
}

// A thread that copies into staging memory leaves the lock to others: nothing of its operation may
// be on the board yet, and all that was submitted earlier over.
bool BoardImpl::being_sent(uint64_t last) const {
  return std::any_of(sending_.begin(), sending_.end(),
                     [&](const Operation* op) { return op->number <= last; });
}

// Nothing of these operations on the board, and nothing left that could be sent; false: the
// deadline came first.
bool BoardImpl::run_until_idle(Deadline deadline, uint64_t last) {
  send_waiting();
  const auto idle = [&] { return !busy(last) && !being_sent(last); };
  while (!health_.broken() && !idle()) {
    if (is_over(deadline)) {
      drain();
      return idle();
    }
    const uint64_t news = news_.count();
    const bool progress = pump(deadline, {.to_end = true});
    send_waiting();
    if (!progress && !busy(last) && being_sent(last)) {
      leave_until(news, deadline);
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
      const Entry entry(*this, EntryKind::kWait, deadline);
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
      const bool progress = is_over(deadline) ? drain() : pump(deadline, {.to_end = true});
      if (progress || busy() || !event.open()) {
        continue;
      }
      if (!event.off_ring && !being_sent()) {
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
      const Entry entry(*this, EntryKind::kWait, deadline);
      if (!entry.entered() || health_.broken() ||
          (event.open() && !pump(deadline, {.to_end = true}) && !busy())) {
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
      const Entry entry(*this, EntryKind::kCall, deadline);
      if (!entry.entered()) {
        return false;
      }
      health_.check_usable();
      last = last == 0 ? op_count_ : last;
      const bool idle = run_until_idle(deadline, last);
      health_.check_unbroken();
      if (idle && std::none_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
            return waiting.op->number <= last;
          })) {
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
