// How long a program cannot send anything to another board, or be over: goes through it ahead of
// the sequencer, with a copy of the scalar registers, to the next instruction that acts outside of
// the board, and counts what the commands in front of it take at least. Of a queue no more than
// core.queue_depth commands wait to start, so all but these have started, and those in front of
// them have left the queue's engine, before the sequencer issues what follows. What waits for
// semaphores or for data comes later, never earlier. No SystemC time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include "core/engine_queues.hpp"
#include "core/program.hpp"
#include "core/scalar_unit.hpp"
#include "tpu/spec/isa.hpp"

namespace tpu::model {

class ProgramScout {
 public:
  // What the sequencer has come to.
  struct Place {
    const Program* program;
    uint32_t pc;
    const ScalarUnit* scalars;
    uint64_t issued;  // commands, ever
    // What it reads in place of data.
    uint32_t replica;
    uint32_t cores;
    uint32_t step;
  };
  using BehindCut = std::function<bool(uint32_t core)>;

  explicit ProgramScout(size_t queue_depth) : depth_(queue_depth) {}

  // `behind_cut`: whether a core is on another board.
  void connect(BehindCut behind_cut) { behind_cut_ = std::move(behind_cut); }
  // Another program starts.
  void start() { stop_ = Stop::kStart; }
  // A cycle, at `now` or later, before which the sequencer does not come to an instruction that
  // acts outside: a transfer or signal to another board, a call of the host, the end. Looks no
  // further than `wanted`.
  uint64_t silent(const Place& place, const EngineQueues& queues, uint64_t now, uint64_t wanted);

 private:
  enum class Stop : uint8_t {
    kStart,    // has not begun
    kNone,     // may look further
    kActs,     // at an instruction that acts outside
    kUnknown,  // at a branch that depends on what is not known here
  };
  // Of a queue: what its commands take, by number from 1 on, of all that it ever had.
  class Ahead {
   public:
    void restart(uint64_t begun) {
      first_ = begun;
      sums_.assign(1, 0);
    }
    void add(uint64_t cycles) { sums_.push_back(sums_.back() + cycles); }
    uint64_t count() const { return first_ + sums_.size() - 1; }
    // Of those behind `begun`, up to number `last`.
    uint64_t cycles(uint64_t begun, uint64_t last) const {
      return sums_[last - first_] - sums_[begun - first_];
    }
    void forget(uint64_t begun) {
      for (; first_ < begun && sums_.size() > 1; ++first_) {
        sums_.pop_front();
      }
    }

   private:
    uint64_t first_ = 0;  // number of the command that sums_[0] is behind
    std::deque<uint64_t> sums_{0};
  };

  void restart(const Place& place, const EngineQueues& queues);
  bool has_to_send(const EngineQueues& queues) const;
  uint64_t queue_bound(const EngineQueues& queues, size_t queue, uint64_t now) const;
  // `peers`: of its data, and of its signals.
  bool acts(const DecodedCommand& command, uint32_t data_peer,
            std::span<const uint32_t> signal_peers) const;
  bool acts(const DecodedCommand& command) const;
  // Counts the instruction, unless it stops there. Returns its queue; kQueueCount: none.
  size_t take(const Place& place, const EngineQueues& queues);
  void take_scalar(const Place& place, const ProgramItem& item);

  const size_t depth_;
  BehindCut behind_cut_;
  Stop stop_ = Stop::kStart;
  bool passes_ = false;  // the instruction at pc_ has acted
  uint32_t pc_ = 0;
  ScalarUnit scalars_;
  uint64_t issued_ = 0;  // in front of pc_, as Place::issued
  std::array<Ahead, spec::kQueueCount> ahead_;
};

}  // namespace tpu::model
