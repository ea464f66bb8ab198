// Waits: threads that wait for events, and let simulated time pass meanwhile. Its calls enter by
// the door themselves, all but run_until_idle().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "src/completions/completions.hpp"
#include "src/door/door.hpp"
#include "src/events/outbox.hpp"
#include "src/handles/event_state.hpp"
#include "src/health/health.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/board_handles.hpp"
#include "src/operations/operations.hpp"
#include "src/operations/send_order.hpp"
#include "src/turn/fork_check.hpp"
#include "src/turn/turn.hpp"
#include "src/turn/waiters.hpp"

namespace tpu::driver {

class Waits {
 public:
  /// Lets simulated time pass until an operation ends, or the deadline comes; true: something has
  /// ended. May give up the lock.
  using Pump = std::function<bool(Deadline deadline)>;
  /// `thread`: the completion thread; null without one.
  Waits(Door& door, Turn& turn, const ForkCheck& forks, Waiters& waiters, HostNews& news,
        Health& health, Outbox& outbox, Operations& operations, SendOrder& order,
        Completions& completions, const std::shared_ptr<CompletionThread>& thread,
        BoardHandles& handles, Pump pump)
      : door_(door),
        turn_(turn),
        forks_(forks),
        waiters_(waiters),
        news_(news),
        health_(health),
        outbox_(outbox),
        operations_(operations),
        order_(order),
        completions_(completions),
        thread_(thread),
        handles_(handles),
        pump_(std::move(pump)) {}

  /// An event that the host sets.
  HostEvent make_host_event();
  /// True: the event is ready; false: the deadline came first.
  bool wait(EventState& event, Deadline deadline);
  /// Lets simulated time pass until the event is ready or the deadline comes, unless another thread
  /// does so.
  void advance(EventState& event, Deadline deadline);
  /// Until all that was submitted before is over. False: the deadline came first.
  bool synchronize(Deadline deadline);

  /// Under the board lock: nothing of the operations up to number `last` on the board, and nothing
  /// left that could be sent; false: the deadline came first.
  bool run_until_idle(Deadline deadline = std::nullopt, uint64_t last = UINT64_MAX)
      TPU_REQUIRES(board_lock);

 private:
  bool look(EventState& event, Deadline deadline) TPU_REQUIRES(board_lock);

  Door& door_;
  Turn& turn_;
  const ForkCheck& forks_;
  Waiters& waiters_;
  HostNews& news_;
  Health& health_;
  Outbox& outbox_;
  Operations& operations_;
  SendOrder& order_;
  Completions& completions_;
  const std::shared_ptr<CompletionThread>& thread_;
  BoardHandles& handles_;
  const Pump pump_;
};

}  // namespace tpu::driver
