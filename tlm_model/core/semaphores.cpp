// Semaphore values, their waiters and the delay of signals.
#include "core/semaphores.hpp"

#include <algorithm>

#include "kernel/cycles.hpp"
#include "tpu/spec/rings.h"
#include "tpu/spec/sem_table.hpp"

namespace tpu::model {

Semaphores::Semaphores(sc_core::sc_module_name name, uint32_t core_id,
                       const spec::BoardParams& params, Agenda& agenda, Activity& activity,
                       const CoreProbe& probe, const VerilogUse& verilog)
    : sc_module(name),
      RegisterBlock(registers()),
      core_id_(core_id),
      delay_(static_cast<uint64_t>(params.core.semaphore_cycles)),
      activity_(activity),
      probe_(probe),
      entries_(static_cast<size_t>(params.core.semaphores)),
      use_(verilog),
      task_(Task::of<&Semaphores::apply_method>(agenda, *this)) {
  if (use_.verilog()) {
    verilog_ = std::make_unique<SemaphoreVerilog>(
        count(), delay_, [this](uint64_t cycle, const std::string& text) {
          use_.differs("cycle " + std::to_string(cycle) + ": " + text);
        });
  }
}

bool Semaphores::claim(uint32_t semaphore, int unit) {
  Entry& entry = entries_[semaphore];
  if (entry.waiter < 0) {
    entry.waiter = unit;
  }
  return entry.waiter == unit;
}

void Semaphores::wake_when(uint32_t semaphore, uint32_t wanted, Task& wake) {
  entries_[semaphore].wanted = wanted;
  entries_[semaphore].wake = &wake;
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
  if (verilog_ != nullptr) {
    verilog_->add(now_cycles(), semaphore, amount);
  }
  const bool first = pending_.empty();
  pending_.push_back({now_cycles() + delay_, semaphore, amount});
  if (first) {
    activity_.set(true);
    task_.wait_cycles(delay_);
  }
}

void Semaphores::apply_method() {
  const uint64_t now = now_cycles();
  while (!pending_.empty() && pending_.front().at <= now) {
    const Pending next = pending_.front();
    pending_.pop_front();
    applied_.push_back({next.semaphore, apply(next.semaphore, next.amount)});
  }
  if (use_.mode == VerilogMode::kLockstep) {
    compare(now);
  }
  applied_.clear();
  if (watcher_ != nullptr) {
    watcher_->notify(watch_reason_);
  }
  if (pending_.empty()) {
    activity_.set(false);
  } else {
    task_.wait_cycles(pending_.front().at - now);
  }
}

void Semaphores::take(uint32_t semaphore, uint32_t amount) {
  entries_[semaphore].value -= amount;
  if (verilog_ != nullptr) {
    verilog_->take(now_cycles(), semaphore, amount);
  }
  tell(semaphore);
}

// By whoever decides; false: the limit would be passed, and the value is what it was.
bool Semaphores::raise_value(uint32_t semaphore, uint32_t amount) {
  Entry& entry = entries_[semaphore];
  const uint64_t now = now_cycles();
  if (use_.mode == VerilogMode::kRtl) {
    entry.value = verilog_->value(now, semaphore);
    return !verilog_->overflow(now, semaphore);
  }
  const bool fits = entry.value + amount <= spec::sem::kLimit;
  entry.value += fits ? amount : 0;
  return fits;
}

// Model against Verilog, when all signals of the cycle have become visible. After an overflow,
// which ends the launch, they may have dropped another part of a cycle's signals.
void Semaphores::compare(uint64_t cycle) {
  for (const Applied& applied : applied_) {
    const bool overflow = std::ranges::any_of(applied_, [&](const Applied& other) {
      return other.semaphore == applied.semaphore && !other.fits;
    });
    const uint32_t model = entries_[applied.semaphore].value;
    const uint32_t verilog = verilog_->value(cycle, applied.semaphore);
    const bool verilog_overflow = verilog_->overflow(cycle, applied.semaphore);
    use_.compared();
    if (overflow != verilog_overflow || (!overflow && model != verilog)) {
      const auto text = [](uint32_t value, bool over) {
        return over ? "over the limit" : std::to_string(value);
      };
      use_.differs("semaphore " + std::to_string(applied.semaphore) + " at cycle " +
                   std::to_string(cycle) + " is " + text(model, overflow) + " in the model and " +
                   text(verilog, verilog_overflow) + " in the Verilog");
    }
  }
}

bool Semaphores::apply(uint32_t semaphore, uint32_t amount) {
  Entry& entry = entries_[semaphore];
  if (!raise_value(semaphore, amount)) {
    FaultInfo info;
    info.code = TPU_FAULT_SEM_OVERFLOW;
    info.semaphore = semaphore;
    info.wanted = amount;
    info.value = entry.value;
    fault_port->raise(info, "semaphore " + std::to_string(semaphore) + " would exceed " +
                                std::to_string(spec::sem::kLimit));
    return false;
  }
  tell(semaphore);
  if (entry.wake != nullptr && entry.value >= entry.wanted) {
    entry.wake->notify();
    entry.wake = nullptr;
  }
  return true;
}

uint32_t Semaphores::nonzero() const {
  return use_.mode == VerilogMode::kRtl
             ? verilog_->nonzero(now_cycles())
             : static_cast<uint32_t>(
                   std::ranges::count_if(entries_, [](const Entry& e) { return e.value != 0; }));
}

uint32_t Semaphores::first_nonzero() const {
  if (use_.mode == VerilogMode::kRtl) {
    return verilog_->first_nonzero(now_cycles());
  }
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
  task_.wait();
  if (verilog_ != nullptr) {
    verilog_->clear(now_cycles());
  }
  activity_.set(false);
}

void Semaphores::forget_waiters() {
  for (Entry& entry : entries_) {
    entry.waiter = -1;
    entry.wake = nullptr;
  }
}

RegisterMap Semaphores::registers() {
  namespace regs = spec::sem;
  static constexpr auto kMap = make_register_map(
      regs::kTable,
      {on_value<&Semaphores::value_register>(regs::kValue),
       on_write<&Semaphores::clear>(regs::kClear), on_value<&Semaphores::nonzero>(regs::kNonzero),
       on_value<&Semaphores::first_nonzero_register>(regs::kFirstNonzero),
       on_value<&Semaphores::count>(regs::kCount)});
  return kMap.view();
}

uint32_t Semaphores::value_register(uint32_t index) const {
  return index < entries_.size() ? entries_[index].value : 0;
}

uint32_t Semaphores::first_nonzero_register() const {
  return first_nonzero() < count() ? first_nonzero() : kUndefined;
}

}  // namespace tpu::model
