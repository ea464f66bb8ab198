// Options of `tpuboard train`, and the configuration that they change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "loop/train_config.hpp"

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
  int64_t cores = 0;
  bool scale_batch = false;
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

/// The file with what the options change in it. Throws Error.
training::TrainConfig configuration(const TrainArguments& arguments);

}  // namespace tpu::driver
