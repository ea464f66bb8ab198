// Looks at a connection while the board runs, and ends the run when the driver calls or is gone, or
// when the run has taken long enough.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "sync/mutex.hpp"

namespace tpu::driver::worker {

class RunWatch {
 public:
  /// `interrupt` is called in a thread of the watch.
  explicit RunWatch(std::function<void()> interrupt);
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;
  ~RunWatch();

  // One thread at a time calls both. They are cheap: short runs are not looked at.
  /// The board runs, and nobody else reads this socket. `limit` of wall-clock time (0: none), which
  /// is kept within some milliseconds. It ends what began before.
  void begin(int socket, std::chrono::nanoseconds limit);
  /// The board stands, or asks the driver. False: it stood already.
  bool end();

 private:
  void watch();
  void wait_for_runs();
  void look(uint64_t run);
  int look_milliseconds() const;

  const std::function<void()> interrupt_;
  std::atomic<uint64_t> run_ = 0;  // odd: the board runs
  std::atomic<int> socket_ = -1;
  std::atomic<std::chrono::steady_clock::time_point> end_;  // of a run that has a limit
  base::Mutex mutex_;
  base::CondVar turn_;
  std::atomic<bool> asleep_ = false;
  bool stopped_ TPU_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tpu::driver::worker
