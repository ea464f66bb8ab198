// What would shorten a step: kinds of cost and operations, each removed and halved in the re-timing
// model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/accounts.hpp"
#include "report/retime.hpp"

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
/// `threads`: of the host; the result does not depend on it.
std::vector<WhatIf> best_changes(const spec::StepRecord& record, const StepAccount& account,
                                 uint64_t step_cycles, size_t most, unsigned threads);

}  // namespace tpu::driver
