// Which blocks of the cores beside the matrix units are Verilog: the patterns of a command line
// ("board.chip0.*.sem=lockstep") against instance paths. Keeps what lockstep reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "board/unit_reports.hpp"
#include "core/verilog/verilog_use.hpp"
#include "tpu/sim_options.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::model {

class VerilogSelect {
 public:
  // Throws std::runtime_error for a pattern that matches no such block of the board or a mode that
  // does not exist.
  VerilogSelect(const spec::SimOptions& sim, const spec::BoardParams& params);

  // Of the block with this path; refers to this object.
  VerilogUse use(const std::string& path);

  uint64_t mismatches() const { return mismatches_; }
  // That lockstep has compared so far.
  uint64_t semaphore_values() const { return semaphore_values_; }
  uint64_t transfers() const { return transfers_; }
  const std::string& mismatch_text() const { return reports_.text(); }
  // At the end of a run of `steps` steps: lockstep that compared nothing, a line an option.
  std::string finish(uint64_t steps) const;

 private:
  struct Choice {
    std::string pattern, text;  // as it was given
    VerilogMode mode = VerilogMode::kModel;
    uint64_t compared = 0;
  };
  void differs(const std::string& path, const std::string& text);

  std::vector<Choice> choices_;  // never grows once it is made: `use` refers to them
  uint64_t mismatches_ = 0;
  uint64_t semaphore_values_ = 0;
  uint64_t transfers_ = 0;
  UnitReports reports_;
};

}  // namespace tpu::model
