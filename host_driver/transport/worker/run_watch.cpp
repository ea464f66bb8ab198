#include "transport/worker/run_watch.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tpu::driver::worker {
namespace {

constexpr std::chrono::milliseconds kShortRun{1};
constexpr int kLookMilliseconds = 10;
using Clock = std::chrono::steady_clock;

constexpr int kQuietLooks = 100;  // without a run, until the thread sleeps

}  // namespace

RunWatch::RunWatch(std::function<void()> interrupt)
    : interrupt_(std::move(interrupt)), thread_([this] { watch(); }) {}

RunWatch::~RunWatch() {
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
    run_ += run_ & 1;
  }
  turn_.notify_one();
  thread_.join();
}

void RunWatch::begin(int socket, std::chrono::nanoseconds limit) {
  end();
  socket_ = socket;
  end_ = limit.count() == 0 ? Clock::time_point::max() : Clock::now() + limit;
  ++run_;
  if (asleep_) {
    { const base::MutexLock lock(mutex_); }
    turn_.notify_one();
  }
}

bool RunWatch::end() {
  const bool runs = (run_ & 1) != 0;
  run_ += runs ? 1 : 0;
  return runs;
}

void RunWatch::wait_for_runs() {
  const base::MutexLock lock(mutex_);
  asleep_ = true;
  while (!stopped_ && (run_ & 1) == 0) {
    turn_.wait(mutex_);
  }
  asleep_ = false;
}

// 0: the run has taken long enough.
int RunWatch::look_milliseconds() const {
  const Clock::time_point end = end_;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return end == Clock::time_point::max()
             ? kLookMilliseconds
             : static_cast<int>(std::clamp<int64_t>(left, 0, kLookMilliseconds));
}

void RunWatch::look(uint64_t run) {
  while (run_ == run) {
    pollfd one{socket_, POLLIN | POLLRDHUP, 0};
    const int wait = look_milliseconds();
    if ((::poll(&one, 1, wait) > 0 || wait == 0) && run_ == run) {
      interrupt_();
      while (run_ == run) {
        std::this_thread::sleep_for(kShortRun);
      }
    }
  }
}

void RunWatch::watch() {
  for (int quiet = 0;;) {
    {
      const base::MutexLock lock(mutex_);
      if (stopped_) {
        return;
      }
    }
    const uint64_t run = run_;
    if ((run & 1) == 0 && ++quiet > kQuietLooks) {
      wait_for_runs();
      quiet = 0;
      continue;
    }
    std::this_thread::sleep_for(kShortRun);
    if ((run & 1) != 0) {
      quiet = 0;
      look(run);
    }
  }
}

}  // namespace tpu::driver::worker
