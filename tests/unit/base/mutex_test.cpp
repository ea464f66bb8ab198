// Annotated locks behave as those of the standard library that they wrap.
#include "sync/mutex.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace tpu::base {
namespace {

// A value that threads pass on.
class Box {
 public:
  void put(int value) {
    {
      const MutexLock lock(mutex_);
      value_ = value;
    }
    changed_.notify_all();
  }
  int await(int wanted) {
    const MutexLock lock(mutex_);
    while (value_ != wanted) {
      changed_.wait(mutex_);
    }
    return value_;
  }
  // False: it was not there in time.
  bool await_for(int wanted, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    const MutexLock lock(mutex_);
    while (value_ != wanted) {
      if (!changed_.wait_until(mutex_, end)) {
        return false;
      }
    }
    return true;
  }
  // Another thread gets the lock meanwhile; it is held again afterwards, also by an error.
  void step_aside(bool throws) {
    const MutexLock lock(mutex_);
    try {
      const MutexUnlock open(mutex_);
      std::thread([this] { put(7); }).join();
      if (throws) {
        throw std::runtime_error("meanwhile");
      }
    } catch (const std::runtime_error&) {
      ++value_;
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int value_ TPU_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, AWaitEndsWithTheChange) {
  Box box;
  std::thread other([&] { box.put(3); });
  EXPECT_EQ(box.await(3), 3);
  other.join();
}

TEST(Mutex, AWaitEndsWithItsTime) {
  Box box;
  EXPECT_FALSE(box.await_for(1, std::chrono::milliseconds(5)));
  box.put(1);
  EXPECT_TRUE(box.await_for(1, std::chrono::milliseconds(0)));
}

TEST(Mutex, AStretchWithoutTheLockEndsWithIt) {
  Box box;
  box.step_aside(false);
  EXPECT_EQ(box.await(7), 7);
  box.step_aside(true);
  EXPECT_EQ(box.await(8), 8);
}

}  // namespace
}  // namespace tpu::base
