// What the head of an engine's queue waits for before it starts: its semaphores, one after the
// other, and then the delay of a seeded schedule.
#pragma once

#include <cstdint>
#include <systemc>

#include "core/engine_context.hpp"
#include "core/ports.hpp"

namespace tpu::model {

class HeadWait {
 public:
  // All outlive it. `wake` is notified when a wait may have ended.
  HeadWait(const EngineContext& context, int unit, sc_core::sc_port<SemaphoreIf>& semaphores,
           sc_core::sc_port<FaultIf>& faults, Task& wake)
      : context_(context), unit_(unit), semaphores_(semaphores), faults_(faults), wake_(wake) {}

  // All waits of the head hold: takes what they take. Else registers for the first that does not.
  bool met(const QueuedCommand& queued);
  // Another command is the head.
  void forget() { waits_ = false; }
  void reset() {
    waits_ = false;
    held_until_ = 0;
  }

  // For a semaphore, with the value below.
  bool waits() const { return waits_; }
  uint32_t semaphore() const { return semaphore_; }
  uint32_t wanted() const { return wanted_; }
  // The cycle from which on the head may start.
  uint64_t held_until() const { return held_until_; }

 private:
  bool held(const QueuedCommand& queued);
  void begin(const QueuedCommand& queued, const spec::Wait& wait, bool waited);
  void end(const QueuedCommand& queued);
  bool claim(const QueuedCommand& queued, const spec::Wait& wait);
  void take(const QueuedCommand& queued, const spec::Wait& wait);
  WaitEvent event(const QueuedCommand& queued, uint64_t cycle, bool begin) const;

  const EngineContext& context_;
  const int unit_;
  sc_core::sc_port<SemaphoreIf>& semaphores_;
  sc_core::sc_port<FaultIf>& faults_;
  Task& wake_;
  bool waits_ = false;
  uint64_t since_ = 0;
  uint32_t semaphore_ = 0;
  uint32_t wanted_ = 0;
  uint64_t held_sequence_ = 0;  // of the command that is held, or was last,
  uint64_t held_until_ = 0;     // and the cycle from which on it may start
};

}  // namespace tpu::model
