// Event: the state's transitions and the waiting, which is the board's pump. HostEvent: the same
// state, set by the host.
#include "tpu/event.hpp"

#include <fmt/format.h>

#include "src/board/board_impl.hpp"
#include "src/handles/access.hpp"
#include "src/handles/event_state.hpp"

namespace tpu::driver {
namespace {

thread_local int callback_depth = 0;

std::shared_ptr<EventState> ready_state() {
  static const std::shared_ptr<EventState> state = [] {
    auto made = std::make_shared<EventState>();
    made->done = true;
    return made;
  }();
  return state;
}

// True: the event, which is of no board, is ready.
bool block(EventState& state, Deadline deadline) {
  const base::MutexLock guard(state.mutex);
  while (!state.done.load()) {
    if (!deadline) {
      state.changed.wait(state.mutex);
    } else if (!state.changed.wait_until(state.mutex, *deadline)) {
      return state.done.load();
    }
  }
  return true;
}

// True: the event is ready. Lets simulated time pass, until `deadline` at most.
bool await(EventState& state, Deadline deadline) {
  if (state.open()) {
    refuse_in_callback();
    if (state.of_no_board) {
      return block(state, deadline);
    }
    if (const auto board = state.board.lock()) {
      return board->waits().wait(state, deadline);
    }
    if (state.open()) {
      throw Error(ErrorCode::kFailedPrecondition, "the board of this event is closed");
    }
  }
  return true;
}

// False when it is set already.
bool settle(EventState& state, const ErrorPtr& error) {
  const auto callbacks = state.set(error);
  if (!callbacks) {
    return false;
  }
  if (const auto board = state.board.lock()) {
    board->note_host_event();
  }
  for (const EventCallback& callback : *callbacks) {
    run_event_callback(callback, error);
  }
  return true;
}

}  // namespace

bool in_event_callback() { return callback_depth > 0; }

void refuse_in_callback() {
  if (in_event_callback()) {
    throw Error(ErrorCode::kFailedPrecondition, "an on_ready callback must not wait for the board");
  }
}

void run_event_callback(const EventCallback& callback, const ErrorPtr& error) {
  run_in_callback([&] { callback(error); });
}

void run_in_callback(const std::function<void()>& work) {
  ++callback_depth;
  try {
    work();
  } catch (...) {
    --callback_depth;
    throw;
  }
  --callback_depth;
}

std::optional<std::vector<EventCallback>> EventState::set(ErrorPtr result) {
  const base::MutexLock guard(mutex);
  if (done.load()) {
    return std::nullopt;
  }
  error = std::move(result);
  done.store(true, std::memory_order_release);
  if (of_no_board) {
    changed.notify_all();
  }
  return std::move(callbacks);
}

Event::Event() : state_(ready_state()) {}
Event::Event(std::shared_ptr<EventState> state) : state_(std::move(state)) {}

bool Event::ready() const { return !state_->open(); }

ErrorPtr Event::wait_for_error() const {
  static_cast<void>(await(*state_, std::nullopt));
  return state_->error;
}

void Event::wait() const {
  if (const ErrorPtr error = wait_for_error()) {
    throw Error(*error);
  }
}

void Event::wait_for(std::chrono::nanoseconds timeout) const {
  if (!await(*state_, deadline_in(timeout))) {
    throw wait_timeout("not ready", timeout);
  }
  if (state_->error) {
    throw Error(*state_->error);
  }
}

bool Event::advance_for(std::chrono::nanoseconds timeout) const {
  if (state_->open() && !in_event_callback()) {
    if (const auto board = state_->board.lock()) {
      board->waits().advance(*state_, deadline_in(timeout));
    }
  }
  return ready();
}

void Event::on_ready(std::function<void(ErrorPtr)> callback) const {
  const std::shared_ptr<EventState> state = state_;  // the callback may drop this handle
  {
    const base::MutexLock guard(state->mutex);
    if (!state->done.load()) {
      state->callbacks.push_back(std::move(callback));
      return;
    }
  }
  run_event_callback(callback, state->error);
}

struct HostEvent::Owner {
  std::shared_ptr<EventState> state;

  explicit Owner(std::shared_ptr<EventState> of) : state(std::move(of)) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (state->open()) {
      settle(*state, std::make_shared<Error>(ErrorCode::kCancelled,
                                             "the host gave up an event without setting it"));
    }
  }

  void end(const ErrorPtr& error) const {
    if (!settle(*state, error)) {
      throw Error(ErrorCode::kFailedPrecondition, "the event is set already");
    }
  }
};

HostEvent Access::host_event(std::shared_ptr<EventState> state) {
  return HostEvent(std::make_shared<HostEvent::Owner>(std::move(state)));
}

namespace {

template <typename Owner>
Owner& need(const std::shared_ptr<Owner>& owner) {
  if (!owner) {
    throw Error(ErrorCode::kInvalidArgument, "the event handle is empty");
  }
  return *owner;
}

}  // namespace

HostEvent HostEvent::of_no_board() {
  return Access::host_event(std::make_shared<EventState>(/*without_board=*/true));
}

Event HostEvent::event() const { return Access::event(need(owner_).state); }
void HostEvent::set() const { need(owner_).end(nullptr); }
void HostEvent::fail(const Error& error) const { need(owner_).end(std::make_shared<Error>(error)); }

}  // namespace tpu::driver
