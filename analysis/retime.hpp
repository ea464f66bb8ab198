// The re-timing model: a recorded step (spec/record/step_record.hpp) run again without its program,
// as a graph of commands that wait for the sequencer's issue, their queue, semaphores and shared
// bandwidth, with some costs changed. Transfers and latencies follow the numbers of a board, which
// may be another one; commands of the engines take what they took, times a factor. Without a change
// it is the step itself, so that each moment also has its cause. What it leaves out: choices that
// the program would make otherwise, what the firmware adds to the way of the gang's barrier, and
// traffic of other programs and of the host.
#pragma once

#include <cstdint>
#include <vector>

#include "record/step_record.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::driver {

struct ReplayProgram;

/// A change of costs; factors of the recorded cycles.
struct CostChange {
  spec::BoardParams board{};  ///< of bandwidths, latencies, queues
  double mxu = 1, vpu = 1, xlu = 1;
  double sequencer = 1;               ///< of the cycles between two items
  uint32_t op = spec::kNoRecordedOp;  ///< all commands of it, transfers too
  double op_factor = 1;
};

/// What let something go on: an earlier moment of a command or of a sequencer.
struct Cause {
  enum class Kind : uint8_t {
    kBegin,  ///< the step of the core
    kIssue,  ///< of the command itself: `index`
    kQueue,  ///< the command `index` in front in the queue freed it, or made its result known
    kDone,   ///< command `index`: its signal, its end or its write
    kStart,  ///< command `index`: it left its queue
    kItem,   ///< item `index` of the sequencer
  };
  Kind kind = Kind::kBegin;
  uint32_t core = 0;  ///< index in the record
  uint32_t index = 0;
};

struct CommandTimes {
  uint64_t start = 0, flow_end = 0, done = 0;
  Cause start_cause{};
  bool behind = false;  ///< its end waited for the one in front
};

struct ItemTimes {
  uint64_t ready = 0, went = 0;
  Cause cause{};  ///< where it went later than it was ready
};

struct CoreTiming {
  uint64_t begin = 0, end = 0;
  std::vector<CommandTimes> commands{};
  std::vector<ItemTimes> items{};
};

struct StepTiming {
  std::vector<CoreTiming> cores;  ///< as in the record
  bool stuck = false;             ///< a core waits for ever: the record has not all signals

  uint64_t begin() const;
  uint64_t end() const;
  uint64_t cycles() const { return end() - begin(); }
  uint64_t skew() const;  ///< from the first core's begin to the last one's
};

/// The change that changes nothing.
CostChange no_change(const spec::StepRecord& record);

/// Deterministic. The record is one that read_record() has given.
StepTiming retime(const spec::StepRecord& record, const CostChange& change);
StepTiming retime(const ReplayProgram& program, const CostChange& change);

}  // namespace tpu::driver
