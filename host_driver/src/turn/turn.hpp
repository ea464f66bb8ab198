// Turn: who has the board. Calls take the board lock in the order of arrival. The thread that lets
// simulated time pass holds it meanwhile, parks the board when a call arrives, and hands the lock
// over. The board lock is the FifoMutex in here; a leaf lock guards whether the board runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "src/lock/board_lock.hpp"
#include "src/turn/deadline.hpp"
#include "src/turn/fifo_mutex.hpp"
#include "src/turn/host_news.hpp"
#include "sync/mutex.hpp"

namespace tpu::driver {

/// Why a thread takes the board lock: for a call, for a figure, or to wait. Waits let the thread
/// that lets simulated time pass go on; the others park the board.
enum class EntryKind : uint8_t { kCall, kLook, kWait };

class Turn {
 public:
  /// `park` makes the board that runs come back soon. It is called by any thread, under a leaf
  /// lock, and only between begin_run() and end_run().
  explicit Turn(std::function<void()> park) : park_(std::move(park)) {}

  // The mutex in here is the board lock of the analysis of threads (board_lock.hpp), which is told
  // so without a look at these bodies. An entry that came too late counts as one: callers look.
  /// Takes the board lock. False when the deadline came before it.
  bool enter(EntryKind kind, Deadline deadline)
      TPU_TRY_ACQUIRE(true, board_lock) TPU_NO_THREAD_SAFETY_ANALYSIS;
  void leave() TPU_RELEASE(board_lock) TPU_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  /// Calls that wait for the board take effect, then the caller goes on.
  void hand_over(Deadline deadline) TPU_REQUIRES(board_lock) TPU_NO_THREAD_SAFETY_ANALYSIS;

  /// Calls of others take effect, until there are more news than `seen`, or the deadline comes.
  void leave_until(HostNews& news, uint64_t seen, Deadline deadline) TPU_REQUIRES(board_lock);

  /// Before simulated time passes. False: a call waits for the board, and the caller may hand it
  /// over.
  bool begin_run() TPU_REQUIRES(board_lock);
  void end_run();
  /// Any thread: simulated time is passing.
  bool running() const { return running_.load(); }

  /// Calls that arrived while simulated time was passing.
  uint64_t late_calls() const { return late_calls_; }
  void set_late_calls(uint64_t calls) { late_calls_ = calls; }

  /// While one lives, the thread that lets simulated time pass hands the lock to nobody.
  class Kept {
   public:
    explicit Kept(Turn& turn) TPU_REQUIRES(board_lock) : turn_(turn) {
      turn.mutex_.assert_held();
      ++turn.kept_;
    }
    ~Kept() TPU_REQUIRES(board_lock) {
      turn_.mutex_.assert_held();
      --turn_.kept_;
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

   private:
    Turn& turn_;
  };
  /// A stretch of a call that uses nothing of the board. Who goes on with a call (`patience` is
  /// over) parks the board for that; who waits, when his deadline has come.
  class TPU_SCOPED_CAPABILITY Left {
   public:
    explicit Left(Turn& turn, Deadline patience = std::chrono::steady_clock::time_point())
        TPU_RELEASE(board_lock)
        : turn_(turn), patience_(patience) {
      turn_.leave();
    }
    // The attribute ends the scope, which takes the lock: the analysis of the body would object.
    ~Left() TPU_RELEASE() TPU_NO_THREAD_SAFETY_ANALYSIS { turn_.enter_again(patience_); }
    Left(const Left&) = delete;
    Left& operator=(const Left&) = delete;

   private:
    Turn& turn_;
    Deadline patience_;
  };

 private:
  void enter_again(Deadline patience) TPU_ACQUIRE(board_lock) TPU_NO_THREAD_SAFETY_ANALYSIS;
  void interrupt_run() TPU_EXCLUDES(run_mutex_);

  const std::function<void()> park_;
  FifoMutex mutex_;
  base::Mutex run_mutex_;  // leaf lock: guards the change of running_
  std::atomic<bool> running_{false};
  int kept_ TPU_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> late_calls_{0};
};

}  // namespace tpu::driver
