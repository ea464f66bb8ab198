// An option that is also a key of the configuration takes its place.
#include "cli/train/train_arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/options.hpp"

namespace tpu::driver {

using training::load_train_config;
using training::TrainConfig;

void check_usage(const TrainArguments& arguments) {
  if (arguments.board.open.sim.no_data &&
      (arguments.resume || arguments.checkpoint_every > 0 || arguments.checkpoint_seconds > 0)) {
    throw UsageError(
        "--no-data computes no state to save or resume; remove --resume, --checkpoint-every and "
        "--checkpoint-seconds");
  }
  if (arguments.accept_changes && !arguments.resume) {
    throw UsageError("--accept-changes needs --resume");
  }
  if (arguments.find_rate && (arguments.board.open.sim.no_data || arguments.resume)) {
    throw UsageError(
        "--find-learning-rate needs losses from the initial state; remove --no-data and "
        "--resume");
  }
}

TrainConfig configuration(const TrainArguments& arguments) {
  std::vector<std::string> changes = arguments.changes;
  if (arguments.cores > 0) {
    changes.push_back(fmt::format("run.cores={}", arguments.cores));
  }
  if (arguments.scale_batch) {
    changes.emplace_back("run.scale_batch=true");
  }
  TrainConfig config = load_train_config(arguments.config, changes);
  config.epochs = arguments.epochs > 0 ? arguments.epochs : config.epochs;
  config.steps_per_execution = arguments.steps_per_execution > 0 ? arguments.steps_per_execution
                                                                 : config.steps_per_execution;
  config.checkpoints.every_steps =
      arguments.checkpoint_every > 0 ? arguments.checkpoint_every : config.checkpoints.every_steps;
  config.checkpoints.every_seconds = arguments.checkpoint_seconds > 0
                                         ? arguments.checkpoint_seconds
                                         : config.checkpoints.every_seconds;
  return config;
}

void add_train_options(CLI::App& command, TrainArguments& arguments) {
  command.add_option("config", arguments.config, "Training configuration")
      ->required()
      ->type_name("CONFIG.toml");
  command
      .add_option("--with", arguments.changes,
                  "A key of the configuration with another value: run.batch=64 (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--cores", arguments.cores,
                  "Cores that train, 1 or all of the board: a program that was exported without "
                  "a mesh gets them, each with a part of the batch (default: as the program says)")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->type_name("N");
  command.add_flag("--scale-batch", arguments.scale_batch,
                   "The batch of the configuration is that of one core; a step takes --cores "
                   "times as many examples");
  command.add_option("--steps", arguments.steps, "Stop after N steps")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command.add_option("--epochs", arguments.epochs, "Epochs, instead of the file's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("N");
  command
      .add_option("--steps-per-execution", arguments.steps_per_execution,
                  "Send N steps to the board in one launch, their batches while they run; the "
                  "last launch of an epoch may be shorter")
      ->check(CLI::Range(int64_t{1}, training::kMaxStepsPerExecution))
      ->type_name("N");
  command
      .add_option("--checkpoint-every", arguments.checkpoint_every,
                  "Write a checkpoint every N steps; one is also written when the run ends and "
                  "when SIGINT or SIGTERM stops it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--checkpoint-seconds", arguments.checkpoint_seconds,
                  "The same, whenever N seconds have passed since the last one")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command.add_flag("--resume", arguments.resume,
                   "Continue from the newest checkpoint in --out, with the bits of a run without a "
                   "stop");
  command.add_flag("--accept-changes", arguments.accept_changes,
                   "With --resume: continue although the program or the data differ");
  command.add_flag("--find-learning-rate", arguments.find_rate,
                   "Do not train: raise the learning rate from 1e-7 to 10 over --steps N steps "
                   "(100) and write the losses to learning_rates.csv and learning_rates.svg");
  command.add_flag(
      "--monitor", arguments.monitor,
      "Show metrics of the board instead of the progress bar, on standard error: a view, or "
      "lines of JSON where that is not a terminal");
  command.add_option("--out,--out-dir", arguments.out, "Folder for run.json and the checkpoint")
      ->check(folder_named)
      ->capture_default_str()
      ->type_name("DIR");
  command.add_option("--json", arguments.json, "A second copy of run.json; -: standard output")
      ->type_name("FILE");
  add_board_options(command, arguments.board);
}

}  // namespace tpu::driver
