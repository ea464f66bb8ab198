// See train_arguments.hpp.
#include "cli/train/train_arguments.hpp"

#include <CLI/CLI.hpp>

#include "cli/options.hpp"
#include "loop/train_config.hpp"

namespace tpu::driver {

void check_usage(const TrainArguments& arguments) {
  if (arguments.board.open.sim.no_data &&
      (arguments.resume || arguments.checkpoint_every > 0 || arguments.checkpoint_seconds > 0)) {
    throw UsageError(
        "--no-data computes no state: no --resume, --checkpoint-every and --checkpoint-seconds "
        "with it");
  }
  if (arguments.accept_changes && !arguments.resume) {
    throw UsageError("--accept-changes goes with --resume");
  }
  if (arguments.find_rate && (arguments.board.open.sim.no_data || arguments.resume)) {
    throw UsageError(
        "--find-learning-rate wants losses from the initial state: no --no-data and no "
        "--resume with it");
  }
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
                   "Go on from the newest checkpoint in --out, with the bits of a run without a "
                   "stop");
  command.add_flag("--accept-changes", arguments.accept_changes,
                   "With --resume: go on although the program or the data are others");
  command.add_flag("--find-learning-rate", arguments.find_rate,
                   "Do not train: raise the learning rate from 1e-7 to 10 over --steps N steps "
                   "(100) and write the losses to learning_rates.csv and learning_rates.svg");
  command.add_flag("--monitor", arguments.monitor,
                   "Show figures of the board instead of the bar, on standard error: a view, or "
                   "lines of JSON where that is no terminal");
  command.add_option("--out,--out-dir", arguments.out, "Folder for run.json and the checkpoint")
      ->capture_default_str()
      ->type_name("DIR");
  command.add_option("--json", arguments.json, "A second copy of run.json; -: standard output")
      ->type_name("FILE");
  add_board_options(command, arguments.board);
}

}  // namespace tpu::driver
