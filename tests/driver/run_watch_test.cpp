// The watch over a connection while a board runs: what ends a run, and what does not.
#include "transport/worker/run_watch.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "socket/descriptor.hpp"

namespace tpu::driver::worker {
namespace {

using namespace std::chrono_literals;

class RunWatchTest : public ::testing::Test {
 protected:
  RunWatchTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    driver_ = base::Descriptor(ends[0]);
    board_ = base::Descriptor(ends[1]);
  }

  void driver_calls() { ASSERT_EQ(::send(driver_.number(), "x", 1, 0), 1); }
  int socket() const { return board_.number(); }

  /// Interrupts, when there are so many or after ten seconds.
  int interrupts(int expected) {
    for (int look = 0; look < 10'000 && interrupts_ < expected; ++look) {
      std::this_thread::sleep_for(1ms);
    }
    return interrupts_;
  }
  /// Interrupts, after some looks of the watch.
  int interrupts_after_looks() {
    std::this_thread::sleep_for(30ms);
    return interrupts_;
  }

 private:
  base::Descriptor driver_, board_;
  std::atomic<int> interrupts_ = 0;

 protected:
  RunWatch watch_{[this] { ++interrupts_; }};  // last: its thread uses the others
};

TEST_F(RunWatchTest, ACallOfTheDriverEndsTheRunOnce) {
  watch_.begin(socket(), 0s);
  EXPECT_EQ(interrupts_after_looks(), 0);
  driver_calls();
  EXPECT_EQ(interrupts(1), 1);
  EXPECT_EQ(interrupts_after_looks(), 1);
}

TEST_F(RunWatchTest, ALimitEndsTheRun) {
  watch_.begin(socket(), 5ms);
  EXPECT_EQ(interrupts(1), 1);
}

// A run that the driver has ended at an interrupt ends there, and again when it returns.
TEST_F(RunWatchTest, ARunThatEndsTwiceLeavesTheNextOneWatched) {
  for (int run = 1; run <= 3; ++run) {
    watch_.begin(socket(), 0s);
    EXPECT_TRUE(watch_.end());
    EXPECT_FALSE(watch_.end());
    driver_calls();
    EXPECT_EQ(interrupts_after_looks(), run - 1);  // the board stands
    watch_.begin(socket(), 0s);
    EXPECT_EQ(interrupts(run), run);
    EXPECT_TRUE(watch_.end());
    char taken = 0;
    ASSERT_EQ(::recv(socket(), &taken, 1, 0), 1);
  }
}

TEST_F(RunWatchTest, ARunThatBeginsBeforeTheOneBeforeHasEndedIsWatched) {
  watch_.begin(socket(), 0s);
  watch_.begin(socket(), 0s);
  driver_calls();
  EXPECT_EQ(interrupts(1), 1);
  EXPECT_TRUE(watch_.end());
}

}  // namespace
}  // namespace tpu::driver::worker
