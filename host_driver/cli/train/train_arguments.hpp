// Options of `tpuboard train`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/board_arguments.hpp"

namespace CLI {
class App;
}

namespace tpu::driver {

struct TrainArguments {
  BoardArguments board;
  std::string config;
  std::vector<std::string> changes;
  std::string out = "out/train";
  std::string json;
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t steps_per_execution = 0;
  int64_t checkpoint_every = 0;
  int64_t checkpoint_seconds = 0;
  bool resume = false;
  bool accept_changes = false;
  bool find_rate = false;
  bool monitor = false;
};

/// Adds CONFIG.toml and all options to the command.
void add_train_options(CLI::App& command, TrainArguments& arguments);

/// Throws UsageError for what means nothing together.
void check_usage(const TrainArguments& arguments);

}  // namespace tpu::driver
