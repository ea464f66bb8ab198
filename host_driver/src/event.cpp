// Event: the state's transitions and the waiting, which is the board's pump.
#include "tpu/event.hpp"

#include "src/board_impl.hpp"
#include "src/event_state.hpp"

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

}  // namespace

bool in_event_callback() { return callback_depth > 0; }

void refuse_in_callback() {
  if (in_event_callback()) {
    throw Error(ErrorCode::kFailedPrecondition, "an on_ready callback must not wait");
  }
}

void run_event_callback(const EventCallback& callback, const ErrorPtr& error) {
  ++callback_depth;
  try {
    callback(error);
  } catch (...) {
    --callback_depth;
    throw;
  }
  --callback_depth;
}

std::vector<EventCallback> EventState::set(ErrorPtr result) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (done.load()) {
    return {};
  }
  error = std::move(result);
  done.store(true, std::memory_order_release);
  return std::move(callbacks);
}

Event::Event() : state_(ready_state()) {}
Event::Event(std::shared_ptr<EventState> state) : state_(std::move(state)) {}

bool Event::ready() const { return state_->done.load(std::memory_order_acquire); }

ErrorPtr Event::wait_for_error() const {
  if (!ready()) {
    refuse_in_callback();
    if (const auto board = state_->board.lock()) {
      board->wait(*state_);
    } else {
      throw Error(ErrorCode::kFailedPrecondition, "the board of this event is closed");
    }
  }
  return state_->error;
}

void Event::wait() const {
  if (const ErrorPtr error = wait_for_error()) {
    throw Error(*error);
  }
}

void Event::on_ready(std::function<void(ErrorPtr)> callback) const {
  {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    if (!state_->done.load()) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  run_event_callback(callback, state_->error);
}

}  // namespace tpu::driver
