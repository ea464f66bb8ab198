// Mutex that serves its callers in the order of arrival. A caller who cannot wait for long asks the
// holder to hand it over.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>

#include "src/turn/deadline.hpp"
#include "sync/mutex.hpp"

namespace tpu::driver {

class TPU_CAPABILITY("mutex") FifoMutex {
 public:
  /// False when the deadline came first. `urge`, where given, is called once without locks when
  /// somebody else has the mutex; the caller counts as urgent() until he is served.
  bool lock(Deadline deadline = std::nullopt, const std::function<void()>& urge = nullptr,
            bool* waited = nullptr) TPU_TRY_ACQUIRE(true);
  /// After an unlock() of a caller who goes on: he waits quietly until `patience` ends, and then
  /// urges as above. Empty: he never does.
  void lock_again(Deadline patience, const std::function<void()>& urge) TPU_ACQUIRE();
  void unlock() TPU_RELEASE() TPU_NO_THREAD_SAFETY_ANALYSIS;
  /// For the analysis of threads: the caller holds it, by a call that another class has made.
  void assert_held() const TPU_ASSERT_CAPABILITY(this) {}

  bool urgent() const { return urgent_.load() > 0; }

 private:
  bool await_turn(uint64_t ticket, Deadline until) TPU_REQUIRES(mutex_);
  bool urge_turn(uint64_t ticket, Deadline until, const std::function<void()>& urge)
      TPU_REQUIRES(mutex_);
  void serve_next() TPU_EXCLUDES(mutex_);

  base::Mutex mutex_;
  base::CondVar turn_;
  uint64_t next_ticket_ TPU_GUARDED_BY(mutex_) = 0;
  uint64_t serving_ TPU_GUARDED_BY(mutex_) = 0;
  // Tickets of callers that did not wait for their turn.
  std::set<uint64_t> given_up_ TPU_GUARDED_BY(mutex_);
  std::atomic<int> urgent_{0};
};

}  // namespace tpu::driver
