// How fast this host does one kind of data work, as the latest parts of jobs show it: hosts differ
// by a factor of ten and more (instruction sets, memory), shapes and zeros of operands too. Decides
// into how many parts a job is worth cutting, never what it computes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tpu::model {

class WorkPace {
 public:
  // A part of less is not worth another thread, which may have to wake up for it.
  static constexpr uint64_t kPartNanoseconds = 30'000;

  // `part`: amount of work that a part has as long as nothing was measured.
  explicit WorkPace(uint64_t part) : part_(part) {}

  // So many parts have work for kPartNanoseconds each; at least one.
  uint64_t parts(uint64_t amount) const {
    return std::max<uint64_t>(amount / part_.load(std::memory_order_relaxed), 1);
  }

  // A part has taken so long. From any thread; of calls at the same time one may be lost.
  void add(uint64_t amount, uint64_t nanoseconds) {
    const uint64_t part = part_.load(std::memory_order_relaxed);
    const uint64_t now = amount * kPartNanoseconds / std::max(nanoseconds, kClock);
    // Short ones that seem slow show how long it takes to begin.
    if (nanoseconds < kPartNanoseconds / 4 && now < part) {
      return;
    }
    const uint64_t mean = (part * (kMemory - 1) + now) / kMemory;
    part_.store(std::max<uint64_t>(mean, 1), std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kMemory = 32;  // parts; one that was interrupted counts little
  static constexpr uint64_t kClock = 500;  // ns that a reading of the clock may be off

  std::atomic<uint64_t> part_;
};

}  // namespace tpu::model
