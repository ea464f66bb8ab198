// How long a step would take with changes, many of one record. A change of the board's numbers is
// replayed from begin to end. One that makes some commands faster, of an operation or of an engine,
// is replayed only around these commands: from the moment of the unchanged replay in front of the
// first one on, until all is as in another moment of it, only earlier. Nothing in a replay depends
// on the time of day, so that the cycles are the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analysis/replay_program.hpp"
#include "analysis/retime.hpp"
#include "record/step_record.hpp"

namespace tpu::driver {

class ChangedSteps {
 public:
  struct Times {
    uint64_t cycles = 0;
    uint64_t skew = 0;  ///< of them: from the first core's begin to the last one's
  };

  /// `program`: of the record; `timing`: that retimed without a change. All outlive it.
  ChangedSteps(const spec::StepRecord& record, const ReplayProgram& program,
               const StepTiming& timing);
  ~ChangedSteps();

  /// The same as retime(). Any thread.
  Times with(const CostChange& change) const;

 private:
  struct Shared;
  std::unique_ptr<const Shared> shared_;
};

}  // namespace tpu::driver
