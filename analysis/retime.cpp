// The traced replay.
#include "analysis/retime.hpp"

#include <algorithm>

#include "analysis/replay.hpp"

namespace tpu::driver {

uint64_t StepTiming::begin() const {
  uint64_t first = UINT64_MAX;
  for (const CoreTiming& core : cores) {
    first = std::min(first, core.begin);
  }
  return first;
}

uint64_t StepTiming::end() const {
  uint64_t last = 0;
  for (const CoreTiming& core : cores) {
    last = std::max(last, core.end);
  }
  return last;
}

uint64_t StepTiming::skew() const {
  uint64_t last = 0;
  for (const CoreTiming& core : cores) {
    last = std::max(last, core.begin);
  }
  return last - begin();
}

CostChange no_change(const spec::StepRecord& record) { return {.board = spec::board_of(record)}; }

StepTiming retime(const spec::StepRecord& record, const CostChange& change) {
  return retime(ReplayProgram(record), change);
}

StepTiming retime(const ReplayProgram& program, const CostChange& change) {
  Replay<true> replay(program, change);
  replay.run([](const Replay<true>&) { return false; });
  StepTiming timing;
  timing.stuck = replay.stuck();
  for (size_t i = 0; i < replay.size(); ++i) {
    timing.cores.push_back(replay.take(i));
  }
  return timing;
}

}  // namespace tpu::driver
