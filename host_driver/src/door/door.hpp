// Door: the way of calls to a board, and out again. A call holds the board lock from its entry on;
// when it leaves, what it has done is delivered without the lock, and the completion thread goes on
// with what is in flight.
#pragma once

#include <memory>
#include <optional>

#include "src/events/outbox.hpp"
#include "src/lock/board_lock.hpp"
#include "src/operations/operations.hpp"
#include "src/operations/send_order.hpp"
#include "src/turn/completion_thread.hpp"
#include "src/turn/fork_check.hpp"
#include "src/turn/turn.hpp"
#include "src/turn/waiters.hpp"

namespace tpu::driver {

class Door {
 public:
  /// `thread`: null without one; it never changes while there are handles of the board.
  Door(Turn& turn, const ForkCheck& forks, Outbox& outbox, const Operations& operations,
       const SendOrder& order, Waiters& waiters, const std::shared_ptr<CompletionThread>& thread)
      : turn_(turn),
        forks_(forks),
        outbox_(outbox),
        operations_(operations),
        order_(order),
        waiters_(waiters),
        thread_(thread) {}

  /// Holds the board lock; on release it runs the callbacks of events that became ready. Throws
  /// FailedPrecondition in a process that was forked from that of the board.
  class TPU_SCOPED_CAPABILITY Entry {
   public:
    // An entry that was too late counts as one for the analysis of threads: callers look.
    explicit Entry(Door& door, EntryKind kind = EntryKind::kCall, Deadline deadline = std::nullopt)
        TPU_ACQUIRE(board_lock) TPU_NO_THREAD_SAFETY_ANALYSIS;
    ~Entry() TPU_RELEASE() TPU_NO_THREAD_SAFETY_ANALYSIS;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    /// False when the deadline came before the lock.
    bool entered() const { return entered_; }

   private:
    Door& door_;
    EntryKind kind_;
    bool entered_;
  };

 private:
  void leave(EntryKind kind) TPU_RELEASE(board_lock);

  Turn& turn_;
  const ForkCheck& forks_;
  Outbox& outbox_;
  const Operations& operations_;
  const SendOrder& order_;
  Waiters& waiters_;
  const std::shared_ptr<CompletionThread>& thread_;
};

}  // namespace tpu::driver
