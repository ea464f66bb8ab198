// One core of the re-timing model: queues, semaphores and sequencer of tlm_model/core/ with their
// times, fed with the commands of a record. A traced one also keeps when each command and item
// went, and for what cause. The other has all that changes in a State, which can be copied: the
// moment of a replay, from which another one can go on.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/replay_program.hpp"
#include "analysis/retime.hpp"
#include "command/bandwidth_share.hpp"

namespace tpu::driver {

/// A started transfer; in place while it is active.
struct ReplayFlow : spec::Transfer {
  uint32_t core = 0;  // index in the record
  uint32_t queue = 0;
  uint32_t index = 0;  // in the queue
  uint64_t fixed_cycles = 0;
};

/// What the cores tell the replay while they run.
struct ReplayPulse {
  std::vector<uint64_t> wake{};  // by core of the record: something happens then; stays in place
  uint64_t progress = 0;         // items, starts and ends of commands
};

/// What connects the cores.
class ReplayFabric {
 public:
  virtual ~ReplayFabric() = default;
  /// Registers the resources of the transfer of a command and returns its fixed cycles.
  virtual uint64_t route(const ReplayCommand& command, ReplayFlow& flow) = 0;
  virtual void start(ReplayFlow& flow) = 0;
  /// Whether a command that is apart may be issued. False: the core is one of several that are
  /// replayed as one, and has to be asked again when it is not.
  virtual bool may_issue(uint32_t queue, uint32_t index) = 0;
  /// Of a command without data, from its start to its end.
  virtual uint64_t control_cycles(uint32_t core, const ReplayCommand& command) = 0;
  virtual void signal(uint64_t now, uint32_t board_core, const spec::SemaphoreUse& use,
                      const Cause& from) = 0;
  /// A write to another core begins (1) or has landed (-1).
  virtual void landing(uint64_t now, uint32_t board_core, int count, const Cause& from) = 0;
};

/// All that changes in a core while it runs.
struct ReplayState {
  struct Queue {
    uint32_t issued = 0, started = 0, done = 0;
    uint64_t next_start = 0;
    uint64_t held = 0;  // until then the next command may not start
    uint64_t last_done = 0;
    uint64_t due = UINT64_MAX;  // something happens then, unless a signal comes before
  };
  struct Pending {
    uint64_t at;
    uint32_t amount;
    uint8_t semaphore;
    Cause from;
  };

  std::array<Queue, spec::kQueueCount> queues{};
  std::array<uint32_t, 256> semaphores{};
  std::vector<Pending> pending{};  // those from `applied` on
  size_t applied = 0;
  std::vector<uint64_t> ends{};  // of commands in flight, by queue; kNever: of a transfer
  uint64_t item = 0;             // of the sequencer
  uint64_t ready = 0;            // it is there
  uint64_t end = 0;
  int64_t inbound = 0;
  uint32_t open = 0;  // bits of the queues with commands that are not done
};

template <bool kTraced>
class ReplayCore {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  /// What takes more or fewer cycles than when it was recorded, by the board's numbers.
  struct Offsets {
    int64_t issue = 0;  // an issue
    int64_t begin = 0;  // until the core begins
  };
  /// Core `index` of the program. It needs flow_count() flows, in place as long as it is used.
  ReplayCore(const ReplayProgram& program, uint32_t index, const CostChange& change,
             const Offsets& offsets, ReplayFabric& fabric, ReplayPulse& pulse);
  size_t flow_count() const { return flow_count_; }
  void use_flows(ReplayFlow* flows);

  /// Does everything that is due at `now`; false: nothing was.
  bool step(uint64_t now);
  void wake_at(uint64_t cycle) { wake_ = std::min(wake_, cycle); }
  void signal(uint64_t now, uint8_t semaphore, uint32_t amount, const Cause& from);
  void landing(uint64_t now, int count, const Cause& from);
  void flow_ended(uint64_t now, uint32_t queue) {
    state_.queues[queue].due = now;
    wake_at(now);
  }
  bool ended() const { return state_.item == stream_.items.size(); }
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return state_.end; }
  const ReplayState& state() const { return state_; }
  /// One of the same core, or of one that is like it, and board.
  void set_state(const ReplayState& state) { state_ = state; }
  /// How many cores it is replayed for.
  void set_weight(uint32_t weight) { weight_ = weight; }
  /// Takes over what `other`, which is like it, is in the middle of.
  void copy(const ReplayCore& other);
  /// Of its transfers under way.
  template <typename Take>
  void for_each_active(const Take& take) {
    for (size_t q = 0; q < in_flight_.size(); ++q) {
      for (size_t i = state_.queues[q].done; i != state_.queues[q].started; ++i) {
        if (state_.ends[slot(q, i)] == kNever && flows_[flow(q, i)].active()) {
          take(core_.command(q, i), flows_[flow(q, i)]);
        }
      }
    }
  }
  /// Of commands that are issued and not done.
  template <typename Is>
  bool any_under_way(const Is& is) const {
    for (uint32_t q = 0; q < in_flight_.size(); ++q) {
      for (uint32_t i = state_.queues[q].done; i != state_.queues[q].issued; ++i) {
        if (is(q, i)) {
          return true;
        }
      }
    }
    return false;
  }
  /// Whether all that is to come is the same, with times counted from `now` and `other_now`;
  /// `other` has the other core's flows.
  bool same(uint64_t now, const ReplayState& other, uint64_t other_now,
            const ReplayFlow* other_flows) const;
  /// Traced.
  CoreTiming take();

 private:
  using Queue = ReplayState::Queue;
  // Of a semaphore: for causes.
  struct Change {
    uint64_t at = 0;
    Cause from{};  // of the last signal
  };

  // Rings of a power of two, as long as the commands in flight at least.
  size_t slot(size_t q, size_t number) const { return first_slot_[q] + (number & mask_[q]); }
  // Queues that transfer have flows too.
  size_t flow(size_t q, size_t number) const { return first_flow_[q] + (number & mask_[q]); }
  bool is_pending() const { return state_.applied != state_.pending.size(); }
  bool full(const Queue& queue) const { return queue.issued - queue.started == depth_; }

  bool apply_signals(uint64_t now);
  bool run_queue(size_t q, uint64_t now);
  bool finish(size_t q, uint64_t now);
  bool start(size_t q, uint64_t now);
  void begin(size_t q, const ReplayCommand& command, uint64_t now);
  uint64_t end_of(size_t q, size_t number) const;
  uint64_t due(size_t q, uint64_t now) const;
  bool waits_met(const ReplayCommand& command) const;
  Cause cause_of(size_t q, const ReplayCommand& command, uint64_t now) const;
  double factor_of(const ReplayCommand& command) const {
    return command.op_id == change_.op ? change_.op_factor : 1;
  }
  uint64_t scaled(size_t q, const ReplayCommand& command, uint64_t cycles) const;
  uint64_t least_gap(const ReplayItem& item) const;
  bool run_sequencer(uint64_t now);
  bool go(const ReplayItem& item, uint64_t now, Cause& cause);
  void next_item(uint64_t now);
  uint64_t next_due(uint64_t now) const;
  bool same_queue(size_t q, uint64_t now, const ReplayState& other, uint64_t other_now,
                  const ReplayFlow* other_flows) const;

  const ReplayProgram::Core& core_;
  const ReplayProgram::Stream& stream_;
  const uint32_t index_;
  const CostChange& change_;
  const Offsets offsets_;
  ReplayFabric& fabric_;
  uint64_t& wake_;
  uint64_t& progress_;
  const size_t depth_;
  const uint64_t begin_;
  std::array<size_t, spec::kQueueCount> in_flight_{}, mask_{}, first_slot_{}, first_flow_{};
  size_t flow_count_ = 0;
  uint32_t weight_ = 1;
  std::array<double, spec::kQueueCount> engine_factor_{};
  ReplayFlow* flows_ = nullptr;
  ReplayState state_;
  // Traced.
  std::vector<Change> changes_;  // by semaphore
  Cause last_cause_{};           // that the end waits for
  CoreTiming timing_;
};

}  // namespace tpu::driver
