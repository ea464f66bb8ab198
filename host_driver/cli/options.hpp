// Command-line options that `run`, `train` and `bench` share, and their checks.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tpu/board.hpp"

namespace CLI {
class App;
}

namespace tpu::driver {

/// Wrong usage: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the command line gives as it stands, and texts that open_options() still has to read.
struct BoardArguments {
  OpenOptions open;
  std::vector<std::string> mxu;
  std::string waves_steps = "0..0";
  std::string mxu_waves_tiles = "0..3";
};

/// Adds --board, --set, --mxu, ... to a subcommand.
void add_board_options(CLI::App& command, BoardArguments& arguments);

/// Throws UsageError for texts that no board can understand.
OpenOptions open_options(const BoardArguments& arguments);

/// Throws InvalidArgument when writing `output` would replace one of the files `inputs`, by any
/// name or link.
void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs);

/// Throws InvalidArgument when a file that the options or --json name to be written is one of
/// `inputs`, or the description of the board.
void keep_inputs(const OpenOptions& options, const std::string& json,
                 std::vector<std::string> inputs);

/// Splits "KEY=VALUE" at the first '='; throws UsageError that names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);

}  // namespace tpu::driver
