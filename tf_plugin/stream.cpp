#include "stream.hpp"

#include <deque>
#include <thread>

#include "runtime/local_array.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {

struct Stream::State {
  struct Entry {
    driver::Event event;
    bool ready = true;  // the event, when it is all that the entry has
    Work work;          // empty: an event
  };

  base::Mutex mutex;
  base::CondVar changed;
  std::deque<std::shared_ptr<Entry>> entries TPU_GUARDED_BY(mutex);  // the first is under way
  std::optional<driver::Error> error TPU_GUARDED_BY(mutex);
  bool has_thread TPU_GUARDED_BY(mutex) = false;
  bool ending TPU_GUARDED_BY(mutex) = false;

  void fail(const driver::Error& why) TPU_REQUIRES(mutex) {
    if (!error) {
      error = why;
    }
  }
  void do_work(const Work& work) {
    try {
      work();
    } catch (const driver::Error& why) {
      const base::MutexLock lock(mutex);
      fail(why);
    } catch (const std::exception& why) {
      const base::MutexLock lock(mutex);
      fail({driver::ErrorCode::kInternal, why.what()});
    }
  }
  /// What the thread does. It keeps the state.
  static void run(const std::shared_ptr<State>& state);
  static void add(const std::shared_ptr<State>& state, std::shared_ptr<Entry> entry)
      TPU_REQUIRES(state->mutex);
};

void Stream::State::run(const std::shared_ptr<State>& state) {
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      const base::MutexLock lock(state->mutex);
      while (state->entries.empty() ? !state->ending : !state->entries.front()->ready) {
        state->changed.wait(state->mutex);
      }
      if (state->entries.empty()) {
        return;
      }
      entry = state->entries.front();
    }
    if (entry->work) {
      state->do_work(entry->work);
      entry->work = nullptr;  // what it holds may go, before others see that it is done
    }
    const base::MutexLock lock(state->mutex);
    state->entries.pop_front();
    state->changed.notify_all();
  }
}

void Stream::State::add(const std::shared_ptr<State>& state, std::shared_ptr<Entry> entry) {
  state->entries.push_back(std::move(entry));
  if (!state->has_thread) {
    state->has_thread = true;
    std::thread([state] { run(state); }).detach();
  }
  state->changed.notify_all();
}

void set_event(const driver::HostEvent& event) {
  try {
    event.set();
  } catch (const driver::Error&) {
    // The board was closed, which has ended the event.
  }
}

Stream::Stream(const pjrt::Runtime& runtime, int device)
    : runtime_(runtime), device_(device), state_(std::make_shared<State>()) {}

Stream::~Stream() {
  const base::MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void Stream::follow(const driver::Event& event) {
  auto entry = std::make_shared<State::Entry>(State::Entry{event, false, nullptr});
  {
    const base::MutexLock lock(state_->mutex);
    State::add(state_, entry);
  }
  event.on_ready([state = state_, entry](const std::shared_ptr<const driver::Error>& error) {
    const base::MutexLock lock(state->mutex);
    entry->ready = true;
    if (error) {
      state->fail(*error);
    }
    state->changed.notify_all();
  });
}

void Stream::call(Work work) {
  const base::MutexLock lock(state_->mutex);
  State::add(state_, std::make_shared<State::Entry>(State::Entry{{}, true, std::move(work)}));
}

void Stream::call_short(Work work) {
  {
    const base::MutexLock lock(state_->mutex);
    if (!state_->entries.empty()) {
      State::add(state_, std::make_shared<State::Entry>(State::Entry{{}, true, std::move(work)}));
      return;
    }
  }
  state_->do_work(work);
}

bool Stream::idle() const {
  const base::MutexLock lock(state_->mutex);
  return state_->entries.empty();
}

driver::Event Stream::reached() {
  if (idle()) {
    return {};
  }
  const driver::HostEvent reached = runtime_.make_event();
  call_short([reached] { set_event(reached); });
  return reached.event();
}

void Stream::wait() {
  for (;;) {
    driver::Event next;
    {
      const base::MutexLock lock(state_->mutex);
      if (state_->entries.empty()) {
        if (!state_->error) {
          return;
        }
        const driver::Error error = *state_->error;
        state_->error.reset();
        throw driver::Error(error);
      }
      const State::Entry& entry = *state_->entries.front();
      if (entry.ready) {  // the thread is at it
        state_->changed.wait(state_->mutex);
        continue;
      }
      next = entry.event;
    }
    static_cast<void>(next.wait_for_error());  // the callback of the event has it, too
    const base::MutexLock lock(state_->mutex);
    if (!state_->entries.empty() && !state_->entries.front()->ready) {
      state_->changed.wait_until(state_->mutex,
                                 std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }
}

std::optional<driver::Error> Stream::error() const {
  const base::MutexLock lock(state_->mutex);
  return state_->error;
}

}  // namespace tpu::tensorflow
