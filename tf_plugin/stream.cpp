#include "stream.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <thread>

#include "runtime/local_array.hpp"
#include "sync/mutex.hpp"

namespace tpu::tensorflow {

struct Stream::State {
  struct Entry {
    driver::Event event = {};
    bool ready = true;    // the event, when it is all that the entry has
    Work work = nullptr;  // an event
    uint64_t number = 0;  // from 1
    Of of = Of::kOneCore;
  };
  /// A call of wait(): it ends with as many entries, and with the error of one of them.
  struct Waiter {
    uint64_t entries = 0;
    std::optional<driver::Error> error;
  };

  explicit State(int device_) : device(device_) {}

  const int device;
  base::Mutex mutex;
  base::CondVar changed;
  std::deque<std::shared_ptr<Entry>> entries TPU_GUARDED_BY(mutex);  // the first is under way
  uint64_t over TPU_GUARDED_BY(mutex) = 0;                           // entries that were in front
  std::optional<driver::Error> error TPU_GUARDED_BY(mutex);          // that nobody has been told
  Of error_of TPU_GUARDED_BY(mutex) = Of::kOneCore;
  std::list<Waiter> waiters TPU_GUARDED_BY(mutex);
  bool has_thread TPU_GUARDED_BY(mutex) = false;
  bool ending TPU_GUARDED_BY(mutex) = false;

  /// Whoever waits for the entry is told.
  void fail(uint64_t entry, const driver::Error& why, Of of = Of::kOneCore) TPU_REQUIRES(mutex) {
    bool told = false;
    for (Waiter& waiter : waiters) {
      if (entry <= waiter.entries) {
        told = true;
        waiter.error = waiter.error ? waiter.error : why;
      }
    }
    if (!told && !error) {
      error = why;
      error_of = of;
    }
  }
  void do_work(uint64_t entry, const Work& work) {
    try {
      work();
    } catch (const driver::Error& why) {
      const base::MutexLock lock(mutex);
      fail(entry, why);
    } catch (const std::exception& why) {
      const base::MutexLock lock(mutex);
      fail(entry, {driver::ErrorCode::kInternal, why.what()});
    }
  }
  /// What the thread does. It keeps the state.
  static void run(const std::shared_ptr<State>& state);
  static void add(const std::shared_ptr<State>& state, std::shared_ptr<Entry> entry)
      TPU_REQUIRES(state->mutex);
};

namespace {

// The streams of the process, for told(). Never destroyed: threads may outlive statics.
struct Streams {
  base::Mutex mutex;
  std::vector<std::weak_ptr<void>> states TPU_GUARDED_BY(mutex);
};
Streams& streams() {
  static Streams* const all = new Streams;
  return *all;
}

}  // namespace

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
      state->do_work(entry->number, entry->work);
      entry->work = nullptr;  // what it holds may go, before others see that it is done
    }
    const base::MutexLock lock(state->mutex);
    state->entries.pop_front();
    ++state->over;
    state->changed.notify_all();
  }
}

void Stream::State::add(const std::shared_ptr<State>& state, std::shared_ptr<Entry> entry) {
  if (!state->has_thread) {  // it may be that there is none: then nothing has changed
    std::thread([state] { run(state); }).detach();
    state->has_thread = true;
  }
  entry->number = state->over + state->entries.size() + 1;
  state->entries.push_back(std::move(entry));
  state->changed.notify_all();
}

void set_event(const driver::HostEvent& event) {
  try {
    event.set();
  } catch (const driver::Error&) {
    // The board was closed, which has ended the event.
  }
}

std::vector<std::shared_ptr<Stream::State>> Stream::states() {
  Streams& all = streams();
  const base::MutexLock lock(all.mutex);
  std::vector<std::shared_ptr<State>> living;
  for (const auto& weak : all.states) {
    if (auto state = std::static_pointer_cast<State>(weak.lock())) {
      living.push_back(std::move(state));
    }
  }
  return living;
}

Stream::Stream(const pjrt::Runtime& runtime, int device)
    : runtime_(runtime), device_(device), state_(std::make_shared<State>(device)) {
  Streams& all = streams();
  const base::MutexLock lock(all.mutex);
  std::erase_if(all.states, [](const auto& state) { return state.expired(); });
  all.states.push_back(state_);
}

Stream::~Stream() {
  const base::MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void Stream::told(const driver::Error& error, int device) {
  for (const std::shared_ptr<State>& state : states()) {
    const base::MutexLock lock(state->mutex);
    if (state->error && (state->device == device || state->error_of == Of::kSeveralCores) &&
        state->error->code() == error.code() && state->error->message() == error.message()) {
      state->error.reset();
    }
  }
}

void Stream::forget_errors() {
  for (const std::shared_ptr<State>& state : states()) {
    const base::MutexLock lock(state->mutex);
    state->error.reset();
  }
}

void Stream::follow(const driver::Event& event, Of of, const std::function<bool()>& told) {
  auto entry = std::make_shared<State::Entry>(State::Entry{event, false, nullptr, 0, of});
  {
    const base::MutexLock lock(state_->mutex);
    State::add(state_, entry);
  }
  const auto ready = [state = state_, entry,
                      told](const std::shared_ptr<const driver::Error>& error) {
    const bool known = error && told && told();
    const base::MutexLock lock(state->mutex);
    entry->ready = true;
    if (error && !known) {
      state->fail(entry->number, *error, entry->of);
    }
    state->changed.notify_all();
  };
  try {
    event.on_ready(ready);
  } catch (const std::exception& why) {  // what follows must not wait for ever
    ready(std::make_shared<const driver::Error>(driver::ErrorCode::kInternal, why.what()));
    throw;
  }
}

void Stream::call(Work work) {
  const base::MutexLock lock(state_->mutex);
  State::add(state_, std::make_shared<State::Entry>(State::Entry{.work = std::move(work)}));
}

void Stream::call_short(Work work) {
  {
    const base::MutexLock lock(state_->mutex);
    if (!state_->entries.empty()) {
      State::add(state_, std::make_shared<State::Entry>(State::Entry{.work = std::move(work)}));
      return;
    }
  }
  state_->do_work(0, work);
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
  State& state = *state_;
  std::list<State::Waiter>::iterator own;
  {
    const base::MutexLock lock(state.mutex);
    own = state.waiters.insert(state.waiters.end(),
                               {state.over + state.entries.size(), std::exchange(state.error, {})});
  }
  for (;;) {
    driver::Event next;
    {
      const base::MutexLock lock(state.mutex);
      if (state.over >= own->entries) {
        const std::optional<driver::Error> error = std::move(own->error);
        state.waiters.erase(own);
        if (error) {
          throw driver::Error(*error);
        }
        return;
      }
      const State::Entry& entry = *state.entries.front();
      if (entry.ready) {  // the thread is at it
        state.changed.wait(state.mutex);
        continue;
      }
      next = entry.event;
    }
    static_cast<void>(next.wait_for_error());  // the callback of the event has it, too
    const base::MutexLock lock(state.mutex);
    if (!state.entries.empty() && !state.entries.front()->ready) {
      state.changed.wait_until(state.mutex,
                               std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }
}

std::optional<driver::Error> Stream::error() const {
  const base::MutexLock lock(state_->mutex);
  return state_->error;
}

}  // namespace tpu::tensorflow
