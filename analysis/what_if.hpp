// What would shorten a step: kinds of cost and operations, each removed and halved in the re-timing
// model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/accounts.hpp"
#include "analysis/retime.hpp"

namespace tpu::driver {

struct WhatIf {
  std::string name;     ///< "HBM bandwidth", or of the operation
  std::string removed;  ///< what was done to the cost: "no limit"
  std::string halved;   ///< "hbm.gbps_per_chip x 2"
  uint32_t op = spec::kNoRecordedOp;
  uint64_t cycles_without = 0;  ///< of the step then
  uint64_t cycles_at_half = 0;
  uint64_t halved_skew = 0;  ///< of them: from the first core's begin to the last one's
};

/// The `most` that shorten the step most when they are removed, best first; only such as do.
/// `timing`: the record retimed without a change. `threads`: of the host; the result does not
/// depend on it. `done` is told the share of the work that is over, by any thread, one at a time.
std::vector<WhatIf> best_changes(const spec::StepRecord& record, const ReplayProgram& program,
                                 const StepAccount& account, const StepTiming& timing, size_t most,
                                 unsigned threads, const std::function<void(double)>& done);

}  // namespace tpu::driver
