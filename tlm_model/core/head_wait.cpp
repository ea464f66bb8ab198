// Waits of the head of a queue.
#include "core/head_wait.hpp"

#include "core/schedule_delay.hpp"
#include "kernel/cycles.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model {

bool HeadWait::met(const QueuedCommand& queued) {
  const auto& waits = queued.command->wait;
  const bool waited = waits_;
  waits_ = false;
  if (queued.command->bad != 0) {
    return true;  // faults at its start
  }
  for (const spec::Wait& wait : waits) {
    if (!wait.valid()) {
      continue;
    }
    if (!claim(queued, wait)) {
      return false;
    }
    if (semaphores_->value(wait.sem) < wait.value) {
      begin(queued, wait, waited);
      semaphores_->wake_when(wait.sem, wait.value, wake_);
      return false;
    }
  }
  if (waited) {
    end(queued);
  }
  if (context_.schedule_seed != 0 && held(queued)) {
    return false;
  }
  for (const spec::Wait& wait : waits) {
    if (wait.valid()) {
      take(queued, wait);
    }
  }
  return true;
}

// False: faulted.
bool HeadWait::claim(const QueuedCommand& queued, const spec::Wait& wait) {
  if (semaphores_->claim(wait.sem, unit_)) {
    return true;
  }
  FaultInfo info = fault_of(*queued.command, TPU_FAULT_SEM_TWO_WAITERS, unit_);
  info.semaphore = wait.sem;
  info.wanted = wait.value;
  info.value = semaphores_->value(wait.sem);
  faults_->raise(info, two_waiters_text(wait.sem, semaphores_->waiter(wait.sem), unit_));
  return false;
}

void HeadWait::take(const QueuedCommand& queued, const spec::Wait& wait) {
  context_.probe.take([&] {
    return TakeEvent{.cycle = now_cycles(),
                     .source = command_source(context_, unit_, queued),
                     .semaphore = wait.sem,
                     .threshold = wait.value,
                     .takes = wait.take()};
  });
  if (wait.take()) {
    semaphores_->take(wait.sem, wait.value);
  }
}

// A seeded schedule: the head, whose waits are met, starts later than it could.
bool HeadWait::held(const QueuedCommand& queued) {
  const uint64_t now = now_cycles();
  if (held_sequence_ != queued.sequence) {
    held_sequence_ = queued.sequence;
    const ScheduleDelay delay{.seed = context_.schedule_seed + context_.launch.job_step,
                              .core = context_.core_id,
                              .queue = static_cast<uint32_t>(unit_),
                              .index = queued.sequence - context_.launch.issued_before};
    held_until_ = now + delay.cycles();
  }
  return now < held_until_;
}

// `waited`: it has waited before, maybe for another semaphore.
void HeadWait::begin(const QueuedCommand& queued, const spec::Wait& wait, bool waited) {
  const bool goes_on = waited && semaphore_ == wait.sem;
  if (waited && !goes_on) {
    end(queued);
  }
  waits_ = true;
  semaphore_ = wait.sem;
  wanted_ = wait.value;
  if (!goes_on) {
    since_ = now_cycles();
    context_.probe.wait(0, [&] { return event(queued, since_, true); });
  }
}

void HeadWait::end(const QueuedCommand& queued) {
  context_.probe.wait(0, [&] { return event(queued, now_cycles(), false); });
}

WaitEvent HeadWait::event(const QueuedCommand& queued, uint64_t cycle, bool begin) const {
  return {.cycle = cycle,
          .source = command_source(context_, unit_, queued),
          .what = WaitEvent::For::kSemaphore,
          .index = semaphore_,
          .wanted = wanted_,
          .value = semaphores_->value(semaphore_),
          .since = since_,
          .begin = begin};
}

}  // namespace tpu::model
