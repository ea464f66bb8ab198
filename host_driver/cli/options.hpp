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

struct BoardArguments {
  std::string board = "v3_8";
  std::string transport = "sim";
  std::vector<std::string> set;
  std::vector<std::string> mxu;
  int threads = 0;
  std::string simd;
  bool no_data = false;
  bool check = false;
  bool profile = false;
  std::optional<double> time_limit;
  std::string trace;
  std::string waves;
  std::string waves_steps = "0..0";
  std::string mxu_waves;
  std::string mxu_waves_tiles = "0..3";
};

/// Adds --board, --set, --mxu, ... to a subcommand.
void add_board_options(CLI::App& command, BoardArguments& arguments);

/// Throws UsageError for texts that no board can understand.
OpenOptions open_options(const BoardArguments& arguments);

/// Splits "KEY=VALUE" at the first '='; throws UsageError that names `option`.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);

}  // namespace tpu::driver
