// How a board is to be opened, as people write it: texts of the command line, or of the environment
// where there is none (client/).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tpu/board.hpp"

namespace tpu::driver {

/// Wrong usage: exit code 2 of the command.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of commands and of programs of a framework, whose people see standard error: seconds until a
/// launch that takes long is told of.
constexpr double kProgressSeconds = 60;

/// What the command line gives as it stands, and texts that open_options() still has to read.
struct BoardArguments {
  BoardArguments() { open.progress_seconds = kProgressSeconds; }

  OpenOptions open;
  std::vector<std::string> mxu;
  std::vector<std::string> verilog;
  std::string waves_steps = "0..0";
  std::string waves_for;
  std::string xprof;           // folder
  std::string xprof_steps;     // empty: all
  std::string record;          // file
  std::string timeline_steps;  // empty: all
  std::string mxu_waves_tiles = "0..3";
};

/// Throws UsageError for texts that no board can understand.
OpenOptions open_options(const BoardArguments& arguments);

/// Splits "KEY=VALUE" at the first '='; throws UsageError that names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);

}  // namespace tpu::driver
