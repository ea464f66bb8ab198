// Mutex, its scoped locks and a condition variable, annotated for clang's thread safety analysis
// (thread_annotations.hpp). They are those of the standard library, which has no annotations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "sync/thread_annotations.hpp"

namespace tpu::base {

class TPU_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() TPU_ACQUIRE() { mutex_.lock(); }
  void unlock() TPU_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Holds a mutex.
class TPU_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TPU_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  ~MutexLock() TPU_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Gives up a mutex that is held, and takes it again at its end.
class TPU_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) TPU_RELEASE(mutex) : mutex_(mutex) { mutex.unlock(); }
  // The attribute ends the scope, which takes the mutex: the analysis of the body would object.
  ~MutexUnlock() TPU_RELEASE() TPU_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits may end without a reason: callers look again, in a loop.
class CondVar {
 public:
  void wait(Mutex& mutex) TPU_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// False: the time is over.
  template <class Clock, class Duration>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& time)
      TPU_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tpu::base
