// Counters of spec/regs/perf.toml of one core: the listener that is always there, since the
// counters are registers of the board and the watchdogs read them. CoreProbe calls it directly.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "probe/core_time.hpp"
#include "probe/events.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::model {

// Counters of a queue: those of the first queues follow each other, those of further matrix units
// stand in pairs behind all others.
constexpr uint32_t busy_counter(uint32_t queue) {
  constexpr auto kFirstMore = static_cast<uint32_t>(spec::Queue::kMxu2);
  return queue < kFirstMore ? spec::perf::kMxu0BusyCycles + queue
                            : spec::perf::kMxu2BusyCycles + 2 * (queue - kFirstMore);
}
constexpr uint32_t commands_counter(uint32_t queue) {
  constexpr auto kFirstMore = static_cast<uint32_t>(spec::Queue::kMxu2);
  return queue < kFirstMore ? spec::perf::kMxu0Commands + queue
                            : spec::perf::kMxu2Commands + 2 * (queue - kFirstMore);
}

class PerfCounters {
 public:
  using Values = std::array<uint64_t, spec::perf::kCounters>;

  void add(uint32_t counter, uint64_t amount) { values_[counter] += amount; }

  void program_begin(uint64_t now) {
    running_ = true;
    times_.program(now, true);
    run_since_ = now;
    first_start_ = std::min(first_start_, now);
  }
  void program_end(uint64_t now, bool complete) {
    running_ = false;
    times_.program(now, false);
    values_[spec::perf::kRunCycles] += now - run_since_;
    if (complete) {
      ++values_[spec::perf::kPrograms];
      ++progress_;
    }
  }

  // A queue is busy while commands of it are started and not done.
  void start(uint32_t queue, uint64_t now) {
    Queue& q = queues_[queue];
    if (q.in_flight++ == 0) {
      q.busy_since = now;
      times_.queue(now, queue, 1);
      if (busy_queues_++ == 0) {
        busy_since_ = now;
      }
    }
  }
  // `worked`: it had something to do.
  void done(uint32_t queue, uint64_t now, bool worked) {
    Queue& q = queues_[queue];
    ++values_[spec::perf::kCommands];
    ++values_[commands_counter(queue)];
    progress_ += worked ? 1 : 0;
    if (--q.in_flight == 0) {
      values_[busy_counter(queue)] += now - q.busy_since;
      times_.queue(now, queue, -1);
      if (--busy_queues_ == 0) {
        any_busy_cycles_ += now - busy_since_;
      }
    }
  }
  void signal_received() { ++progress_; }
  // Work of the host on input begins (1) or ends (-1).
  void upload(uint64_t now, int change) { times_.upload(now, change); }

  // For the watchdog: changes with every command that did work and every signal from another core,
  // so that an endless loop of scalar instructions, nops and own signals is no progress.
  uint64_t progress() const { return progress_; }
  uint64_t run_since() const { return run_since_; }

  // Of a core that runs nothing.
  void visit_state(spec::Archive& archive) {
    archive(values_, progress_, run_since_, first_start_, any_busy_cycles_, times_);
  }

  // Debug port: no registers tell these.
  CoreTimes::Values times(uint64_t now) const { return times_.at(now); }

  // All counters at the present cycle.
  Values at(uint64_t now) const {
    Values values = values_;
    values[spec::perf::kCycles] = now;
    if (running_) {
      values[spec::perf::kRunCycles] += now - run_since_;
    }
    const uint64_t run = values[spec::perf::kRunCycles];
    if (first_start_ != UINT64_MAX) {
      values[spec::perf::kIdleCycles] = now - first_start_ - run;
    }
    const uint64_t busy = any_busy_cycles_ + (busy_queues_ != 0 ? now - busy_since_ : 0);
    values[spec::perf::kStallCycles] = run - std::min(run, busy);
    return values;
  }

 private:
  struct Queue {
    uint32_t in_flight = 0;
    uint64_t busy_since = 0;
  };

  Values values_{};
  uint64_t progress_ = 0;
  bool running_ = false;
  uint64_t run_since_ = 0;
  uint64_t first_start_ = UINT64_MAX;
  std::array<Queue, spec::kQueueCount> queues_{};
  uint32_t busy_queues_ = 0;
  uint64_t busy_since_ = 0;
  uint64_t any_busy_cycles_ = 0;
  CoreTimes times_;
};

}  // namespace tpu::model
