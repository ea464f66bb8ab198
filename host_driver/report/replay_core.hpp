// One core of the re-timing model: queues, semaphores and sequencer of tlm_model/core/ with their
// times, fed with the commands of a record.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "command/bandwidth_share.hpp"
#include "report/retime.hpp"

namespace tpu::driver {

/// What connects the cores.
class ReplayFabric {
 public:
  virtual ~ReplayFabric() = default;
  /// Registers the resources of a transfer and returns its fixed cycles.
  virtual uint64_t route(uint32_t core, const spec::RecordedCommand& command,
                         spec::Transfer& transfer) = 0;
  virtual void start(spec::Transfer& transfer) = 0;
  /// Of a command without data, from its start to its end.
  virtual uint64_t control_cycles(uint32_t core, const spec::RecordedCommand& command) = 0;
  virtual void signal(uint64_t now, const spec::SemaphoreUse& use, const Cause& from) = 0;
  /// A write to another core begins (1) or has landed (-1).
  virtual void landing(uint64_t now, uint32_t board_core, int count, const Cause& from) = 0;
};

class ReplayCore {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  /// Core `index` of the record.
  /// What takes more or fewer cycles than when it was recorded, by the board's numbers.
  struct Offsets {
    int64_t issue = 0;  // an issue
    int64_t begin = 0;  // until the core begins
  };
  ReplayCore(const spec::StepRecord& record, uint32_t index, const CostChange& change,
             const Offsets& offsets, ReplayFabric& fabric);

  /// Does everything that is due at `now`; false: nothing was.
  bool step(uint64_t now);
  uint64_t wake() const { return wake_; }
  void wake_at(uint64_t cycle) { wake_ = std::min(wake_, cycle); }
  void signal(uint64_t now, uint8_t semaphore, uint32_t amount, const Cause& from);
  void landing(uint64_t now, int count, const Cause& from);
  bool ended() const { return item_ == record_.items.size(); }
  CoreTiming take() { return std::move(timing_); }

  /// A started transfer; in place while it is active.
  struct Flow : spec::Transfer {
    uint32_t core = 0;
    uint64_t fixed_cycles = 0;
  };

 private:
  struct Queue {
    std::vector<uint32_t> commands{};  // all of the step, in order
    size_t issued = 0, started = 0, done = 0;
    uint64_t next_start = 0;
    uint64_t last_done = 0;
    std::vector<Flow> flows{};
    size_t depth = 0, in_flight = 0;

    Flow& flow(size_t number) { return flows[number % flows.size()]; }
    bool full() const { return issued - started == depth; }
  };
  struct Pending {
    uint64_t at;
    uint32_t amount;
    Cause from;
    uint8_t semaphore;
  };
  struct Semaphore {
    uint32_t value = 0;
    uint64_t changed = 0;
    Cause from{};  // of the last signal
  };

  bool apply_signals(uint64_t now);
  bool run_queue(Queue& queue, uint64_t now);
  bool finish(Queue& queue, uint64_t now);
  bool start(Queue& queue, uint64_t now);
  void begin(Queue& queue, uint32_t number, uint64_t now);
  uint64_t end_of(Queue& queue, size_t number) const;
  uint64_t held_until(const Queue& queue) const;
  bool waits_met(const spec::RecordedCommand& command) const;
  Cause cause_of(const Queue& queue, uint32_t command, uint64_t now) const;
  uint64_t scaled(const spec::RecordedCommand& command, uint64_t cycles) const;
  uint64_t least_gap(const spec::SequencerItem& item, size_t index) const;
  bool run_sequencer(uint64_t now);
  bool go(const spec::SequencerItem& item, uint64_t now, Cause& cause);
  void next_item(uint64_t now);
  bool idle() const;
  uint64_t next_due(uint64_t now);
  Cause done_cause(uint32_t command) const { return {Cause::Kind::kDone, index_, command}; }

  const spec::RecordedCore& record_;
  const uint32_t index_;
  const CostChange& change_;
  const Offsets offsets_;
  ReplayFabric& fabric_;
  std::array<Queue, spec::kQueueCount> queues_;
  std::array<Semaphore, 256> semaphores_{};
  std::deque<Pending> pending_;
  std::vector<uint64_t> own_done_;  // of commands that have started: without those in front
  size_t item_ = 0;
  int inbound_ = 0;
  uint64_t last_event_ = 0;  // that the end waits for
  Cause last_cause_{};
  uint64_t wake_;
  CoreTiming timing_;
};

}  // namespace tpu::driver
