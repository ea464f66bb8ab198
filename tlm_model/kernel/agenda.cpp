// Turns of tasks.
#include "kernel/agenda.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace tpu::model {
namespace {

constexpr size_t kChildren = 4;

}  // namespace

Agenda::Agenda(sc_core::sc_module_name name) : sc_module(name) {
  SC_METHOD(run_method);
  sensitive << time_event_ << delta_event_;
  dont_initialize();
}

void Agenda::run_method() {
  const uint64_t now = now_cycles();
  const uint64_t delta = sc_core::sc_delta_count();
  if (wakes_at_ <= now) {
    wakes_at_ = kNever;
  }
  turns_.clear();
  running_ = true;
  // What a process before this one has notified in this delta cycle is for the
  // next one.
  take_notified(notified_in_ == delta ? earlier_ : notified_.size());
  take_due(now);
  for (;;) {
    for (Task* const task : turns_) {
      task->run_(task->owner_);
    }
    turns_.clear();
    if (notified_.empty()) {
      break;
    }
    if (sc_core::sc_pending_activity_at_current_time()) {
      notified_in_ = delta;
      earlier_ = 0;
      delta_event_.notify(sc_core::SC_ZERO_TIME);
      break;
    }
    take_notified(notified_.size());
  }
  running_ = false;
  wake_in_time(now);
}

// The first `count` of them.
void Agenda::take_notified(size_t count) {
  const auto end = notified_.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto at = notified_.begin(); at != end; ++at) {
    Task* const task = *at;
    if ((std::exchange(task->reasons_, 0) & task->waits_) != 0) {
      task->forget_time();
      turns_.push_back(task);
    }
  }
  notified_.erase(notified_.begin(), end);
}

void Agenda::take_due(uint64_t now) {
  while (!later_.empty() && later_.front().at <= now) {
    Task* const task = later_.front().task;
    remove_later(*task);
    turns_.push_back(task);
  }
  // Nothing of the ring is late: it wakes SystemC in time.
  const size_t slot = now % kNear;
  if (Task* const first = std::exchange(near_[slot], nullptr)) {
    leave(slot);
    Task* task = first;
    do {
      turns_.push_back(task);
      task->place_ = Task::kNowhere;
      task = task->next_;
    } while (task != first);
  }
}

void Agenda::notify(Task& task) {
  if (!running_) {
    // Between runs of the simulation no delta cycle is under way.
    const uint64_t delta = sc_core::sc_get_curr_simcontext()->evaluation_phase()
                               ? sc_core::sc_delta_count()
                               : UINT64_MAX;
    if (notified_.empty() || delta != notified_in_) {
      notified_in_ = delta;
      earlier_ = notified_.size();
    }
    if (notified_.empty()) {
      delta_event_.notify(sc_core::SC_ZERO_TIME);
    }
  }
  notified_.push_back(&task);
}

void Agenda::set(Task& task, uint64_t now, uint64_t cycles) {
  if (cycles >= kNear) {
    later_.emplace_back();
    const Later later{now + cycles, ++order_, &task};
    rises(later, later_.size() - 1);
  } else {
    const size_t slot = (now + cycles) % kNear;
    task.place_ = Task::kNear;
    task.slot_ = slot;
    if (Task* const first = near_[slot]) {
      task.next_ = first;
      task.previous_ = first->previous_;
      task.previous_->next_ = first->previous_ = &task;
    } else {
      task.next_ = task.previous_ = near_[slot] = &task;
      used_[slot / kWord] |= uint64_t{1} << slot % kWord;
      used_words_ |= uint32_t{1} << slot / kWord;
    }
  }
  if (!running_) {
    wake_in_time(now);
  }
}

void Agenda::remove(Task& task) {
  if (task.place_ != Task::kNear) {
    remove_later(task);
  } else {
    task.place_ = Task::kNowhere;
    if (task.next_ == &task) {
      near_[task.slot_] = nullptr;
      leave(task.slot_);
    } else {
      task.next_->previous_ = task.previous_;
      task.previous_->next_ = task.next_;
      if (near_[task.slot_] == &task) {
        near_[task.slot_] = task.next_;
      }
    }
  }
  if (!running_) {
    wake_in_time(now_cycles());
  }
}

// Nothing is left at this place of the ring.
void Agenda::leave(size_t slot) {
  uint64_t& word = used_[slot / kWord];
  word &= ~(uint64_t{1} << slot % kWord);
  if (word == 0) {
    used_words_ &= ~(uint32_t{1} << slot / kWord);
  }
}

void Agenda::remove_later(Task& task) {
  const size_t place = std::exchange(task.place_, Task::kNowhere);
  const Later last = later_.back();
  later_.pop_back();
  if (place < later_.size() && !rises(last, place)) {
    sinks(last, place);
  }
}

void Agenda::put(const Later& later, size_t place) {
  later_[place] = later;
  later.task->place_ = place;
}

// Puts it at the free place or above, where it belongs. True: above.
bool Agenda::rises(const Later& later, size_t place) {
  const size_t from = place;
  while (place > 0 && later.before(later_[(place - 1) / kChildren])) {
    const size_t parent = (place - 1) / kChildren;
    put(later_[parent], place);
    place = parent;
  }
  put(later, place);
  return place != from;
}

// The same below.
void Agenda::sinks(const Later& later, size_t place) {
  for (;;) {
    const size_t first = kChildren * place + 1;
    const size_t end = std::min(first + kChildren, later_.size());
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      least = later_[child].before(later_[least]) ? child : least;
    }
    if (first >= end || !later_[least].before(later)) {
      break;
    }
    put(later_[least], place);
    place = least;
  }
  put(later, place);
}

// The first cycle from `now` on of a task in the ring.
uint64_t Agenda::next_near(uint64_t now) const {
  if (used_words_ == 0) {
    return kNever;
  }
  const size_t slot = now % kNear;
  const size_t word = slot / kWord;
  if (const uint64_t rest = used_[word] >> slot % kWord; rest != 0) {
    return now + static_cast<uint64_t>(std::countr_zero(rest));
  }
  // The words behind, round the ring, and at last what lies in front of `now`
  // in its own word.
  constexpr size_t kWords = kNear / kWord;
  static_assert(kWords == 32);
  const auto words = std::rotr(used_words_, static_cast<int>(word + 1));
  const size_t found = (word + 1 + static_cast<size_t>(std::countr_zero(words))) % kWords;
  const size_t at = found * kWord + static_cast<size_t>(std::countr_zero(used_[found]));
  return now + (at + kNear - slot) % kNear;
}

// While tasks run, this is left to their end.
void Agenda::wake_in_time(uint64_t now) {
  const uint64_t next = std::min(next_near(now), later_.empty() ? kNever : later_.front().at);
  if (next == wakes_at_) {
    return;
  }
  if (next > wakes_at_) {
    time_event_.cancel();
  }
  wakes_at_ = next;
  if (next != kNever) {
    time_event_.notify(from_cycles(next - now));
  }
}

}  // namespace tpu::model
