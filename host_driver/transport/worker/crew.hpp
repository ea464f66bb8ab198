// Threads that make the same call to all workers of a pod at the same time, and where they meet
// within it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "sync/mutex.hpp"

namespace tpu::driver::worker {

/// When a call has ended by an exception and others do not end within `patience`, `give_up` is
/// called once, which ends them; without it, they are waited for.
struct Rescue {
  std::chrono::milliseconds patience{0};
  std::function<void()> give_up{};
  bool behind_any_end = false;  ///< an end without an exception counts too
  /// Called now and then in the thread of a rank that waits for others, in meet() or since its own
  /// call has ended. What it throws ends the call of this rank.
  std::function<void(size_t rank)> find_end{};
};

class Crew {
 public:
  /// The caller of all() is one of the `ranks`.
  explicit Crew(size_t ranks);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  /// Calls with each rank and returns when all calls have; what each has thrown, by rank.
  std::vector<std::exception_ptr> all(const std::function<void(size_t rank)>& call,
                                      const Rescue& rescue = {});

  /// Within all(): comes back in all ranks when all have come. `come` is called in each of them,
  /// one after the other, and `last` behind the last one; all get what it returns. False when a
  /// call has ended by an exception. Throws what Rescue::find_end throws.
  bool meet(size_t rank, const std::function<void()>& come, const std::function<bool()>& last);

 private:
  void work(size_t rank);
  void perform(size_t rank);
  void finish(size_t rank, const std::exception_ptr& error) TPU_REQUIRES(mutex_);
  void wait_for_others(size_t rank) TPU_REQUIRES(mutex_);
  void find_end(size_t rank) TPU_REQUIRES(mutex_);
  void rescue_others() TPU_REQUIRES(mutex_);

  const size_t ranks_;
  base::Mutex mutex_;
  base::CondVar turn_;
  const std::function<void(size_t)>* call_ TPU_GUARDED_BY(mutex_) = nullptr;
  uint64_t number_ TPU_GUARDED_BY(mutex_) = 0;  // of the call
  const Rescue* rescue_ TPU_GUARDED_BY(mutex_) = nullptr;
  size_t running_ TPU_GUARDED_BY(mutex_) = 0;  // calls that have not ended
  size_t looking_ TPU_GUARDED_BY(mutex_) = 0;  // threads in Rescue::find_end behind their call
  size_t inside_ TPU_GUARDED_BY(mutex_) = 0;   // threads that use what all() was given
  bool ends_ TPU_GUARDED_BY(mutex_) = false;
  std::vector<std::exception_ptr> errors_ TPU_GUARDED_BY(mutex_);
  bool failed_ TPU_GUARDED_BY(mutex_) = false;
  bool rescues_ TPU_GUARDED_BY(mutex_) = false;  // a thread looks after the calls that run
  size_t met_ TPU_GUARDED_BY(mutex_) = 0;
  uint64_t meeting_ TPU_GUARDED_BY(mutex_) = 0;
  bool result_ TPU_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tpu::driver::worker
