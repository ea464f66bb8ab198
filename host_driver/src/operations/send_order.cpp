// Operations that wait at the host, and those that are in front of them.
#include "src/operations/send_order.hpp"

#include <algorithm>
#include <utility>

namespace tpu::driver {

// `earlier`: how many of those that wait come before it.
bool SendOrder::waits(const Operation& op, size_t earlier) const {
  const auto open = [](const auto& event) { return event->open(); };
  const auto off_ring = [](const auto& event)
                            TPU_REQUIRES(board_lock) { return event->open() && event->off_ring; };
  return (held_ && op.launch() && held_(op)) ||
         std::any_of(op.after.begin(), op.after.end(), open) ||
         std::any_of(op.inputs.begin(), op.inputs.end(), off_ring) ||
         std::any_of(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(earlier),
                     [&](const Waiting& before) { return conflict(*before.op, op); }) ||
         operations_.behind_one_being_sent(op);
}

void SendOrder::send_in_order(const std::shared_ptr<Operation>& op, std::function<void()> send) {
  operations_.put_last(*op);
  const Operations::Sending place(operations_, *op);
  send_waiting();
  if (waits(*op, waiting_.size()) && !health_.broken()) {
    op->event->off_ring = true;
    waiting_.push_back({op, std::move(send)});
    return;
  }
  send_now(op, send);
}

void SendOrder::send_now(const std::shared_ptr<Operation>& op, const std::function<void()>& send) {
  const Operations::Sending place(operations_, *op);
  op->event->off_ring = op->crosses;
  const auto give_up = [&](const ErrorPtr& error) TPU_REQUIRES(board_lock) {
    op->error = op->error ? op->error : error;
    if (op->launch()) {
      operations_.finish(*op, op->error);
    } else {
      operations_.abandon(op);
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
  operations_.seal(op);
}

// Sending may wait for room, which comes back here: then the outer call goes on with what is left.
void SendOrder::send_waiting() {
  if (sending_ || waiting_.empty() || must_not_wait_()) {
    return;
  }
  sending_ = true;
  for (size_t i = 0; i < waiting_.size();) {
    const Operation& next = *waiting_[i].op;
    ErrorPtr error = health_.broken();
    if (!error && next.launch()) {
      error = health_.cancelled();
    }
    error = error ? error : next.failed_input();
    if (!error && waits(next, i)) {
      ++i;
      continue;
    }
    const Waiting taken = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    if (error) {
      operations_.finish(*taken.op, error);
      continue;
    }
    try {
      send_now(taken.op, taken.send);
    } catch (const std::exception&) {
      // Its event tells.
    }
  }
  sending_ = false;
}

bool SendOrder::any(uint64_t last) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& waiting) { return waiting.op->number <= last; });
}

void SendOrder::fail_all(const ErrorPtr& error) {
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    operations_.finish(*waiting.op, error);
  }
}

}  // namespace tpu::driver
