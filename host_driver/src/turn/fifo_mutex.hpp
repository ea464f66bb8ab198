// Mutex that serves its callers in the order of arrival. A caller who cannot wait for long asks the
// holder to hand it over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "src/turn/deadline.hpp"

namespace tpu::driver {

class FifoMutex {
 public:
  /// False when the deadline came first. `urge`, where given, is called once without locks when
  /// somebody else has the mutex; the caller counts as urgent() until he is served.
  bool lock(Deadline deadline = std::nullopt, const std::function<void()>& urge = nullptr,
            bool* waited = nullptr);
  /// After an unlock() of a caller who goes on: he waits quietly until `patience` ends, and then
  /// urges as above. Empty: he never does.
  void lock_again(Deadline patience, const std::function<void()>& urge);
  void unlock();

  bool urgent() const { return urgent_.load() > 0; }

 private:
  using Guard = std::unique_lock<std::mutex>;
  bool await_turn(Guard& guard, uint64_t ticket, Deadline until);
  bool urge_turn(Guard& guard, uint64_t ticket, Deadline until, const std::function<void()>& urge);

  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
  std::set<uint64_t> given_up_;  // tickets of callers that did not wait for their turn
  std::atomic<int> urgent_{0};
};

}  // namespace tpu::driver
