// tpuboard train: a training run from a configuration file; progress, run.json, checkpoints.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/checkpoint.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/profile.hpp"
#include "cli/program_file.hpp"
#include "cli/stop_signals.hpp"
#include "cli/train/progress_bar.hpp"
#include "files/files.hpp"
#include "files/json_output.hpp"
#include "loop/train_report.hpp"
#include "loop/trainer.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using training::check_checkpoint_folder;
using training::Checkpoint;
using training::checkpoint_step;
using training::EpochResult;
using training::Init;
using training::InitKind;
using training::InputConfig;
using training::load_train_config;
using training::Progress;
using training::read_checkpoint;
using training::state_digest;
using training::train_report;
using training::TrainConfig;
using training::Trainer;
using training::TrainHooks;
using training::TrainLimits;
using training::write_checkpoint;

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct TrainArguments {
  BoardArguments board;
  std::string config;
  std::string out = "out/train";
  std::string json;
  int64_t steps = 0;
  int64_t epochs = 0;
  int64_t checkpoint_every = 0;
  bool resume = false;
};

// The folder that the configuration names; one of the usual name takes the state of a run that was
// stopped when it names none. It is replaced as a whole, so that nothing else may be in it.
fs::path checkpoint_folder(const fs::path& out, const TrainConfig& config) {
  const fs::path path =
      (out / (config.checkpoint.empty() ? "checkpoint" : config.checkpoint)).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  const fs::path inner = fs::weakly_canonical(out);
  const fs::path outer = fs::weakly_canonical(folder);
  const auto [rest, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (rest == outer.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("run.checkpoint = \"{}\" must name a folder of its own, for example "
                            "\"checkpoint\"; {} holds the results of the run",
                            config.checkpoint, folder.string()));
  }
  return folder;
}

// The first error of several things that are all tried.
class FirstError {
 public:
  template <typename Action>
  void attempt(Action action) {
    try {
      action();
    } catch (...) {
      first_ = first_ ? first_ : std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) {
      std::rethrow_exception(first_);
    }
  }

 private:
  std::exception_ptr first_;
};

// A trainer with the places where its results go.
class TrainRun {
 public:
  TrainRun(const TrainArguments& arguments, const TrainConfig& config, Trainer& trainer)
      : arguments_(arguments),
        out_(arguments.out),
        folder_(checkpoint_folder(out_, config)),
        keeps_(trainer.has_data() &&
               (!config.checkpoint.empty() || arguments.resume || arguments.checkpoint_every > 0)),
        trainer_(trainer) {
    if (trainer.first_step() > 0) {
      saved_step_ = trainer.first_step();
    }
  }

  // All steps, or those up to a signal, whose number comes back (0: none came).
  int train() {
    ProgressBar bar(trainer_);
    const TrainHooks hooks{.step = [&](const Progress& at) { bar.step(at); },
                           .epoch_done = [&](const EpochResult& result) { bar.epoch(result); },
                           .stop_wanted = [] { return StopSignals::received() != 0; },
                           .save = [this] { save_on_the_way(); }};
    try {
      const TrainLimits limits{.max_steps = arguments_.steps,
                               .checkpoint_every = arguments_.checkpoint_every};
      return trainer_.train(limits, hooks) ? 0 : StopSignals::received();
    } catch (const std::exception& error) {
      throw std::runtime_error(error.what() + what_is_left());
    }
  }

  // Checkpoint and figures; each is tried, whatever happens to the others.
  void write_results(int signal, Clock::time_point start, const JsonOutput& json) {
    FirstError errors;
    std::string digest;
    if (trainer_.has_data()) {
      const Checkpoint end = trainer_.checkpoint();
      digest = state_digest(end.leaves);
      if (keeps_ || signal != 0) {
        errors.attempt([&] { save_at_the_end(end); });
      }
    } else {
      digest = state_digest(trainer_.state());
    }
    const std::chrono::duration<double> wall = Clock::now() - start;
    const nlohmann::ordered_json report =
        train_report(trainer_, arguments_.board.open.transport, digest, wall.count(),
                     signal != 0 ? signal_name(signal) : "");
    errors.attempt([&] { write_json_file(report_path(), report, Durability::kSynced); });
    if (json.wanted()) {
      errors.attempt([&] { json.write(report); });
    }
    errors.rethrow();
  }

  std::string stop_text(int signal) const {
    const std::string where =
        saved_step_ ? fmt::format("checkpoint: {}; go on with --resume", folder_.string())
                    : "no checkpoint, since --no-data computes nothing";
    return fmt::format("{}: stopped after step {} of {}; figures: {}; {}", signal_name(signal),
                       trainer_.losses().size(), trainer_.planned_steps(arguments_.steps),
                       report_path(), where);
  }

 private:
  std::string report_path() const { return (out_ / "run.json").string(); }

  void save(const Checkpoint& checkpoint) {
    check_checkpoint_folder(folder_);
    write_checkpoint(folder_, checkpoint);
    saved_step_ = checkpoint.step;
  }

  void save_at_the_end(const Checkpoint& checkpoint) {
    try {
      save(checkpoint);
    } catch (const Error& error) {
      throw std::runtime_error(
          fmt::format("no checkpoint of step {}: {}{}", checkpoint.step, error.what(), stands()));
    }
  }

  // Where the state can be found that was saved last.
  std::string stands() const {
    return saved_step_ ? fmt::format("\nthe state after step {} stands in {}; go on with --resume",
                                     *saved_step_, folder_.string())
                       : "";
  }

  // Training goes on without it: room may come back, and the checkpoint before is as it was.
  void save_on_the_way() {
    const Checkpoint checkpoint = trainer_.checkpoint();
    try {
      save(checkpoint);
    } catch (const Error& error) {
      fmt::print(stderr, "tpuboard: no checkpoint of step {}; the run goes on: {}\n",
                 checkpoint.step, error.what());
    }
  }

  // Behind an error of a step: where to go on.
  std::string what_is_left() {
    std::optional<Checkpoint> rest = trainer_.has_data() ? trainer_.rescue() : std::nullopt;
    std::string wrong;
    if (rest) {
      try {
        save(*rest);
      } catch (const std::exception& error) {
        wrong = fmt::format("\nthe state after step {} could not be saved: {}", rest->step,
                            error.what());
      }
    }
    if (saved_step_) {
      return wrong + stands();
    }
    if (trainer_.steps_run() == 0) {
      return wrong;
    }
    wrong += "\nthis run wrote no checkpoint before; --checkpoint-every N writes one every N steps";
    const std::optional<int64_t> earlier = checkpoint_step(folder_);
    return earlier ? wrong + fmt::format("\n{} holds the state of an earlier run after step {}",
                                         folder_.string(), *earlier)
                   : wrong;
  }

  const TrainArguments& arguments_;
  const fs::path out_;
  const fs::path folder_;
  const bool keeps_;
  Trainer& trainer_;
  std::optional<int64_t> saved_step_;
};

// What was asked for with words that mean nothing together.
void check_usage(const TrainArguments& arguments) {
  if (arguments.board.open.sim.no_data && (arguments.resume || arguments.checkpoint_every > 0)) {
    throw UsageError("--no-data computes no state: no --resume and no --checkpoint-every with it");
  }
}

std::vector<std::string> files_of(const TrainConfig& config) {
  std::vector<std::string> files = {config.train};
  for (const InputConfig& input : config.inputs) {
    files.push_back(input.file);
  }
  if (!config.eval.empty()) {
    files.push_back(config.eval);
  }
  for (const Init& init : config.init) {
    if (init.kind == InitKind::kFile) {
      files.push_back(init.path);
    }
  }
  return files;
}

// Neither the files that are written nor a checkpoint, which replaces its whole folder, takes the
// place of an input.
void check_outputs(const TrainArguments& arguments, const TrainConfig& config,
                   const fs::path& checkpoint) {
  std::vector<std::string> inputs = files_of(config);
  const bool keeps =
      !config.checkpoint.empty() || arguments.checkpoint_every > 0 || arguments.resume;
  std::error_code none;  // what is not there is replaced by nothing
  for (const std::string& input : inputs) {
    if (keeps && fs::equivalent(fs::absolute(input).parent_path(), checkpoint, none)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a checkpoint would replace the folder of this input; choose "
                              "another one with --out or run.checkpoint, or move the file",
                              input));
    }
  }
  inputs.push_back(arguments.config);
  keep_inputs(arguments.board.open, arguments.json, inputs);
  refuse_overwrite((fs::path(arguments.out) / "run.json").string(), inputs);
}

// The number of classes that the program knows binds: a label beyond it has no place in a one-hot
// code.
void set_classes(TrainConfig& config, const CompiledFile& program, const Executable& loaded,
                 const std::string& file) {
  const training::Signature signature = training::train_signature(config, loaded);
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    InputConfig& input = config.inputs[i];
    const size_t argument = *signature.argument({training::Role::kInput, i});
    const int64_t known =
        argument < program.one_hot_classes.size() ? program.one_hot_classes[argument] : 0;
    if (known > 0 && input.classes > known) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: data.classes is {}, but {} compares the {} with the {} "
                              "classes 0 to {}; correct it or leave it out",
                              file, input.classes, config.train, input.name, known, known - 1));
    }
    if (input.classes == 0 && known > 0) {
      input.classes = known;
      input.classes_from = config.train;
    }
  }
}

void print_notes(const Trainer& trainer, const TrainConfig& config, bool resumed) {
  if (resumed) {
    fmt::print("resumed at step {}\n", trainer.first_step());
  }
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    if (config.inputs[i].numbers && config.inputs[i].classes == 0 && trainer.has_data()) {
      const auto [low, high] = trainer.data().range(i);
      fmt::print(stderr,
                 "tpuboard: {} go from {} to {}; they are not checked against the classes of the "
                 "program, since neither data.classes nor the program tells how many there are\n",
                 config.inputs[i].name, low, high);
    }
  }
  if (!config.checkpoint.empty() && !trainer.has_data()) {
    fmt::print(stderr, "tpuboard: no checkpoint is written, since --no-data computes no state\n");
  }
}

void train(const TrainArguments& arguments) {
  const auto start = Clock::now();
  check_usage(arguments);
  const JsonOutput json(arguments.json);
  TrainConfig config = load_train_config(arguments.config);
  config.epochs = arguments.epochs > 0 ? arguments.epochs : config.epochs;
  OpenOptions options = open_options(arguments.board);
  make_folder(arguments.out);
  const FolderLock lock(arguments.out);  // two runs would write over each other's checkpoints
  options.sim.tile_folder = arguments.out;
  const fs::path folder = checkpoint_folder(arguments.out, config);
  std::optional<Checkpoint> from;
  if (arguments.resume) {
    from = read_checkpoint(folder);
  }
  if (!config.checkpoint.empty() || arguments.checkpoint_every > 0) {
    check_checkpoint_folder(folder);  // before hours of work, not behind them
  }
  check_outputs(arguments, config, folder);
  const CompiledFile train_file = program_file(config.train, options);
  const std::vector<std::byte> eval_image =
      config.eval.empty() ? std::vector<std::byte>() : program_bytes(config.eval, options);
  const Board board = Board::open(options);
  std::optional<Executable> eval;
  if (!eval_image.empty()) {
    eval = board.load(eval_image);
  }
  const Executable program = board.load(train_file.executable);
  set_classes(config, train_file, program, arguments.config);
  Trainer trainer(board, config, program, eval, !options.sim.no_data, from ? &*from : nullptr);
  from.reset();
  print_notes(trainer, config, arguments.resume);
  TrainRun run(arguments, config, trainer);
  ProfileWindow profile(board);
  const StopSignals signals;  // until the results are written
  const int signal = run.train();
  profile.close();
  run.write_results(signal, start, json);
  profile.print(static_cast<double>(std::max<int64_t>(1, trainer.steps_run())));
  if (signal != 0) {
    fmt::print(stderr, "tpuboard: {}\n", run.stop_text(signal));
  } else if (const std::string early = trainer.stopped_early(); !early.empty()) {
    fmt::print("stopped after step {} of {}: {}\n", trainer.losses().size(),
               trainer.planned_steps(arguments.steps), early);
  }
  board.close();
  require_clean(trainer.window().last());
  if (signal != 0) {
    throw StoppedBySignal(signal);
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train as a configuration file says");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("config", arguments->config, "Training configuration")
      ->required()
      ->type_name("CONFIG.toml");
  command->add_option("--steps", arguments->steps, "Stop after N steps")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command->add_option("--epochs", arguments->epochs, "Epochs, instead of the file's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("N");
  command
      ->add_option("--checkpoint-every", arguments->checkpoint_every,
                   "Write a checkpoint every N steps; one is also written when the run ends and "
                   "when SIGINT or SIGTERM stops it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command->add_flag("--resume", arguments->resume,
                    "Go on from the checkpoint in --out, with the bits of a run without a stop");
  command->add_option("--out,--out-dir", arguments->out, "Folder for run.json and the checkpoint")
      ->capture_default_str()
      ->type_name("DIR");
  command->add_option("--json", arguments->json, "A second copy of run.json; -: standard output")
      ->type_name("FILE");
  add_board_options(*command, arguments->board);
  command->callback([arguments] { train(*arguments); });
}

}  // namespace tpu::driver
