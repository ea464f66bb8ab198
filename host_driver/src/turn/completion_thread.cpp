// The loop of the thread: it sleeps until a call is over, then lets time pass.
#include "src/turn/completion_thread.hpp"

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>

#include "sync/mutex.hpp"

namespace tpu::driver {
namespace {

// Without a call for so long, the caller is taken to have submitted what belongs together.
constexpr std::chrono::microseconds kSettle{100};
// The kernel's own 50 us would make half as much again of it.
constexpr unsigned long kTimerSlackNs = 1000;

}  // namespace

struct CompletionThread::State {
  base::Mutex mutex;  // leaf lock
  base::CondVar news;
  bool stop TPU_GUARDED_BY(mutex) = false;
  bool wanted TPU_GUARDED_BY(mutex) = false;
  uint64_t calls TPU_GUARDED_BY(mutex) = 0;
  std::chrono::steady_clock::time_point last_call TPU_GUARDED_BY(mutex);
};

CompletionThread::CompletionThread(std::function<bool()> let_time_pass)
    : state_(std::make_shared<State>()),
      thread_([state = state_, work = std::move(let_time_pass)] { service_thread(state, work); }) {}

CompletionThread::~CompletionThread() {
  {
    const base::MutexLock guard(state_->mutex);
    state_->stop = true;
  }
  state_->news.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CompletionThread::call_is_over() {
  bool asleep = false;
  {
    const base::MutexLock guard(state_->mutex);
    asleep = !state_->wanted;
    state_->wanted = true;
    ++state_->calls;
    state_->last_call = std::chrono::steady_clock::now();
  }
  if (asleep) {
    state_->news.notify_all();
  }
}

void CompletionThread::begin_at_once() {
  {
    const base::MutexLock guard(state_->mutex);
    state_->wanted = true;
    ++state_->calls;
    state_->last_call = {};
  }
  state_->news.notify_all();
}

void CompletionThread::service_thread(const std::shared_ptr<State>& state,
                                      const std::function<bool()>& let_time_pass) {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);  // of this thread
  const base::MutexLock lock(state->mutex);
  while (!state->stop) {
    if (!state->wanted) {
      state->news.wait(state->mutex);
      continue;
    }
    const auto settled = state->last_call + kSettle;
    if (std::chrono::steady_clock::now() < settled) {
      state->news.wait_until(state->mutex, settled);
      continue;
    }
    const uint64_t calls = state->calls;
    bool more = false;
    {
      const base::MutexUnlock open(state->mutex);
      more = let_time_pass();
    }
    state->wanted = more || state->calls != calls;
  }
}

}  // namespace tpu::driver
