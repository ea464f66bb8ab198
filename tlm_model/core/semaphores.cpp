// Semaphore values, their waiters and the delay of signals.
#include "core/semaphores.hpp"

#include <algorithm>

#include "kernel/cycles.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/sem_regs.hpp"

namespace tpu::model {

Semaphores::Semaphores(sc_core::sc_module_name name, uint32_t core_id,
                       const spec::BoardParams& params, Activity& activity, const CoreProbe& probe)
    : RegisterBlock(name),
      core_id_(core_id),
      delay_(static_cast<uint64_t>(params.core.semaphore_cycles)),
      activity_(activity),
      probe_(probe),
      entries_(static_cast<size_t>(params.core.semaphores)) {
  SC_METHOD(apply_method);
  sensitive << pending_event_;
  dont_initialize();
}

bool Semaphores::claim(uint32_t semaphore, int unit) {
  Entry& entry = entries_[semaphore];
  if (entry.waiter < 0) {
    entry.waiter = unit;
  }
  return entry.waiter == unit;
}

void Semaphores::wake_when(uint32_t semaphore, uint32_t wanted, sc_core::sc_event& wake) {
  entries_[semaphore].wanted = wanted;
  entries_[semaphore].wake = &wake;
}

void Semaphores::take(uint32_t semaphore, uint32_t amount) {
  entries_[semaphore].value -= amount;
  tell(semaphore);
}

void Semaphores::tell(uint32_t semaphore) const {
  probe_.semaphore([&] {
    return SemaphoreEvent{.cycle = now_cycles(),
                          .core = core_id_,
                          .semaphore = semaphore,
                          .value = entries_[semaphore].value};
  });
}

void Semaphores::add(uint32_t semaphore, uint32_t amount) {
  const bool first = pending_.empty();
  pending_.push_back({now_cycles() + delay_, semaphore, amount});
  if (first) {
    activity_.set(true);
    pending_event_.notify(from_cycles(delay_));
  }
}

void Semaphores::apply_method() {
  const uint64_t now = now_cycles();
  while (!pending_.empty() && pending_.front().at <= now) {
    const Pending next = pending_.front();
    pending_.pop_front();
    apply(next.semaphore, next.amount);
  }
  settled_event_.notify(sc_core::SC_ZERO_TIME);
  if (pending_.empty()) {
    activity_.set(false);
  } else {
    pending_event_.notify(from_cycles(pending_.front().at - now));
  }
}

void Semaphores::apply(uint32_t semaphore, uint32_t amount) {
  Entry& entry = entries_[semaphore];
  if (entry.value + amount > spec::sem::kLimit) {
    FaultInfo info;
    info.code = TPU_FAULT_SEM_OVERFLOW;
    info.semaphore = semaphore;
    info.wanted = amount;
    info.value = entry.value;
    fault_port->raise(info, "semaphore " + std::to_string(semaphore) + " would exceed " +
                                std::to_string(spec::sem::kLimit));
    return;
  }
  entry.value += amount;
  tell(semaphore);
  if (entry.wake != nullptr && entry.value >= entry.wanted) {
    entry.wake->notify(sc_core::SC_ZERO_TIME);
    entry.wake = nullptr;
  }
}

uint32_t Semaphores::first_nonzero() const {
  const auto it = std::ranges::find_if(entries_, [](const Entry& e) { return e.value != 0; });
  return static_cast<uint32_t>(it - entries_.begin());
}

void Semaphores::clear() {
  for (uint32_t i = 0; i < count(); ++i) {
    const bool changes = entries_[i].value != 0;
    entries_[i] = Entry{};
    if (changes) {
      tell(i);
    }
  }
  pending_.clear();
  pending_event_.cancel();
  activity_.set(false);
}

void Semaphores::forget_waiters() {
  for (Entry& entry : entries_) {
    entry.waiter = -1;
    entry.wake = nullptr;
  }
}

uint32_t Semaphores::read_register(uint32_t offset) const {
  if (offset < spec::sem::kValue + spec::sem::kValueCount * spec::sem::kValueStride) {
    const uint32_t index = (offset - spec::sem::kValue) / spec::sem::kValueStride;
    return index < entries_.size() ? entries_[index].value : 0;
  }
  switch (offset) {
    case spec::sem::kNonzero:
      return static_cast<uint32_t>(
          std::ranges::count_if(entries_, [](const Entry& e) { return e.value != 0; }));
    case spec::sem::kFirstNonzero:
      return first_nonzero() < count() ? first_nonzero() : kUndefined;
    case spec::sem::kCount:
      return count();
    case spec::sem::kStale:
      return stale_;
    default:
      return kUndefined;
  }
}

void Semaphores::write_register(uint32_t offset, uint32_t /*value*/) {
  if (offset == spec::sem::kClear) {
    clear();
  }
}

}  // namespace tpu::model
