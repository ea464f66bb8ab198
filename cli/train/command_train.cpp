// tpuboard train: a training run from a configuration file; progress, run.json, checkpoints.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "checkpoint/checkpoint_folder.hpp"
#include "cli/attempts.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/profile.hpp"
#include "cli/program_file.hpp"
#include "cli/record_file.hpp"
#include "cli/stop_signals.hpp"
#include "cli/train/config_files.hpp"
#include "cli/train/not_finite.hpp"
#include "cli/train/progress_bar.hpp"
#include "cli/train/run_checkpoints.hpp"
#include "cli/train/seen_progress.hpp"
#include "cli/train/train_arguments.hpp"
#include "cli/train/train_programs.hpp"
#include "cli/unwritten.hpp"
#include "cli/xprof_folder.hpp"
#include "file/files.hpp"
#include "format/json_output.hpp"
#include "job/sampler.hpp"
#include "loop/train_report.hpp"
#include "loop/trainer.hpp"
#include "readers/view.hpp"
#include "report/metrics_files.hpp"
#include "report/rate_finder.hpp"
#include "report/report_page.hpp"
#include "report/run_figures.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"
#include "tpu/profiling_facet.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver {
namespace {

using training::Checkpoint;
using training::CheckpointName;
using training::EpochResult;
using training::InputConfig;
using training::Progress;
using training::state_digest;
using training::train_report;
using training::TrainConfig;
using training::Trainer;
using training::TrainHooks;
using training::TrainLimits;

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kReportPage = "report.html";

// The folder that the configuration names; one of the usual name takes the state of a run that was
// stopped when it names none.
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

// A run that is stopped by a signal writes a checkpoint in any case.
bool keeps_checkpoints(const TrainArguments& arguments, const TrainConfig& config) {
  const training::CheckpointRules& rules = config.checkpoints;
  return !config.checkpoint.empty() || arguments.resume || rules.every_steps > 0 ||
         rules.every_seconds > 0 || !rules.best.empty();
}

// A trainer with the places where its results go.
class TrainRun {
 public:
  TrainRun(const TrainArguments& arguments, const TrainConfig& config, Trainer& trainer,
           RunCheckpoints& checkpoints, const OpenOptions& options, const TrainPrograms& programs,
           monitor::Sampler& sampler)
      : arguments_(arguments),
        out_(arguments.out),
        rules_(config.checkpoints),
        keeps_(trainer.has_data() && keeps_checkpoints(arguments, config)),
        trainer_(trainer),
        checkpoints_(checkpoints),
        not_finite_(trainer, config, checkpoints, options, programs.data_parallel),
        sampler_(sampler),
        meter_(trainer),
        metrics_(out_, trainer.first_step()) {}

  // All steps, or those up to a signal, whose number comes back (0: none came).
  int train() {
    ProgressBar bar(trainer_);
    const TrainHooks hooks{
        .step =
            [&](const Progress& at) {
              if (!arguments_.monitor) {
                bar.step(at);
              }
              sampler_.progress(seen_from_outside(at, trainer_.has_data()));
              if (at.step > told_step_) {  // else it ran before a fault
                told_step_ = at.step;
                metrics_.add(meter_.step(at));
              }
              checkpoints_.poll();
            },
        .epoch_done =
            [&](const EpochResult& result) {
              if (!arguments_.monitor) {
                bar.epoch(result);
              }
              if (result.epoch > told_epoch_) {
                told_epoch_ = result.epoch;
                metrics_.add(meter_.epoch(result));
              }
            },
        .stop_wanted = [] { return StopSignals::received() != 0; },
        .save =
            [this] {
              if (keeps_) {
                metrics_.sync();  // what --resume goes on from has its rows
                checkpoints_.save_on_the_way(trainer_);
              }
              meter_.skip();
            },
        .replayed = [this](const driver::Error& why, int64_t to) { went_back(why, to); }};
    try {
      const TrainLimits limits{.max_steps = arguments_.steps,
                               .checkpoint_every = rules_.every_steps,
                               .checkpoint_seconds = rules_.every_seconds};
      return trainer_.train(limits, hooks) ? 0 : StopSignals::received();
    } catch (const training::NotFinite& error) {
      checkpoints_.finish();
      const std::string left =
          checkpoints_.saved_step() ? checkpoints_.stands_finite() : what_is_left();
      throw std::runtime_error(error.what() + not_finite_.explain(error) + left);
    } catch (const std::exception& error) {
      throw std::runtime_error(error.what() + what_is_left());
    }
  }

  // Checkpoint and figures.
  void write_results(int signal, Clock::time_point start, const JsonOutput& json,
                     Attempts& errors) {
    metrics_.sync();
    std::optional<std::string> digest;
    if (trainer_.has_data() && (keeps_ || signal != 0)) {
      const Checkpoint end = trainer_.checkpoint();
      digest = state_digest(end.leaves);
      errors.attempt([&] { save_at_the_end(end); });
    } else if (trainer_.has_data()) {
      digest = trainer_.digest();
    }
    const std::chrono::duration<double> wall = Clock::now() - start;
    nlohmann::ordered_json report =
        train_report(trainer_, arguments_.board.open.transport, digest, wall.count(),
                     signal != 0 ? signal_name(signal) : "");
    report["replays"] = replays_;
    report["checkpoints"] = checkpoints_.figures(trainer_);
    errors.attempt([&] { write_json_file(report_path(), report, Durability::kSynced); });
    errors.attempt([&] { metrics_.finish(); });
    errors.attempt([&] {
      const std::string page = training::report_page(arguments_.config, report, metrics_.rows());
      write_file((out_ / kReportPage).string(), std::as_bytes(std::span(page)));
    });
    if (json.wanted()) {
      errors.attempt([&] { json.write(report); });
    }
  }

  // Without what the run has gone back for: differences of matrix units end their launches. Those
  // of other units do not, and are told apart only where nothing of these was compared.
  BoardCounters left_unclean() const {
    BoardCounters counters = trainer_.window().last();
    if (mismatches_ > 0 && counters.lockstep_semaphores == 0 && counters.lockstep_transfers == 0) {
      counters.lockstep_mismatches = 0;
    }
    return counters;
  }

  std::string stop_text(int signal) const {
    const std::string where =
        checkpoints_.saved_step()
            ? fmt::format("checkpoint: {}; continue with --resume", checkpoints_.path().string())
            : "no checkpoint, since --no-data computes nothing";
    return fmt::format("{}: stopped after step {} of {}; report: {}; {}", signal_name(signal),
                       trainer_.losses().size(), trainer_.planned_steps(arguments_.steps),
                       report_path(), where);
  }

 private:
  void went_back(const driver::Error& why, int64_t to) {
    spec::print(stderr, "tpuboard: a step failed, and the run goes back to step {}: {}\n", to,
                spec::printable_lines(why.what()));
    ++replays_;
    mismatches_ += why.message().find("RTL_MISMATCH") != std::string::npos ? 1 : 0;
    meter_.skip();
  }

  std::string report_path() const { return (out_ / "run.json").string(); }

  void save_at_the_end(const Checkpoint& checkpoint) {
    try {
      checkpoints_.save(checkpoint, trainer_);
    } catch (const Error& error) {
      throw std::runtime_error(fmt::format("the checkpoint of step {} was not written: {}{}",
                                           checkpoint.step, error.what(), checkpoints_.stands()));
    }
  }

  // Behind an error of a step: where to go on.
  std::string what_is_left() {
    checkpoints_.finish();
    std::optional<Checkpoint> rest = trainer_.has_data() ? trainer_.rescue() : std::nullopt;
    std::string wrong;
    if (rest) {
      metrics_.sync();
      try {
        checkpoints_.save(*rest, trainer_);
      } catch (const std::exception& error) {
        wrong = fmt::format("\nthe state after step {} could not be saved: {}", rest->step,
                            error.what());
      }
    }
    if (checkpoints_.saved_step()) {
      return wrong + checkpoints_.stands();
    }
    if (trainer_.steps_run() == 0) {
      return wrong;
    }
    wrong += "\nthis run wrote no checkpoint before; --checkpoint-every N writes one every N steps";
    const auto earlier = training::newest_checkpoint(checkpoints_.path());
    return earlier ? wrong + fmt::format("\n{} holds the state of an earlier run after step {}",
                                         checkpoints_.path().string(), earlier->step)
                   : wrong;
  }

  const TrainArguments& arguments_;
  const fs::path out_;
  const training::CheckpointRules rules_;
  const bool keeps_;
  Trainer& trainer_;
  RunCheckpoints& checkpoints_;
  NotFiniteSearch not_finite_;
  monitor::Sampler& sampler_;
  training::StepMeter meter_;
  training::MetricsFiles metrics_;
  int64_t told_step_ = 0;  // the last one with a row there
  int64_t told_epoch_ = 0;
  int64_t replays_ = 0;     // faults behind which the run went back
  int64_t mismatches_ = 0;  // of them, matmuls on which the Verilog did not agree
};

// Neither the files that are written nor a checkpoint, which removes older ones, takes the place of
// an input.
void check_outputs(const TrainArguments& arguments, const TrainConfig& config,
                   const fs::path& checkpoint) {
  std::vector<std::string> inputs = config_files(config);
  std::error_code none;  // what is not there is replaced by nothing
  for (const std::string& input : inputs) {
    if (CheckpointName::parse(fs::path(input).filename().string()) &&
        fs::equivalent(fs::absolute(input).parent_path(), checkpoint, none)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the checkpoints of this run would replace this input; choose "
                              "another folder with --out or run.checkpoint, or move the file",
                              input));
    }
  }
  inputs.push_back(arguments.config);
  keep_inputs(arguments.board, {arguments.json}, inputs);
  std::vector<std::string> outputs = training::MetricsFiles::files(arguments.out);
  for (const char* name : {"run.json", kReportPage, "learning_rates.csv", "learning_rates.svg"}) {
    outputs.push_back((fs::path(arguments.out) / name).string());
  }
  for (const std::string& output : outputs) {
    refuse_overwrite(output, inputs);
  }
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
                  fmt::format("{}: data.classes is {}, but {} encodes the {} with the {} classes 0 "
                              "to {}; correct data.classes or remove it",
                              file, input.classes, config.train, input.name, known, known - 1));
    }
    if (input.classes == 0 && known > 0) {
      input.classes = known;
      input.classes_from = config.train;
    }
  }
}

void print_notes(const Trainer& trainer, const TrainConfig& config, bool resumed) {
  if (config.cores > 0) {
    spec::print("{}, {} examples a step\n", spec::counted(config.cores, "core"), config.batch);
  }
  if (config.cores > 1 && !config.scale_batch && config.learning_rate &&
      config.learning_rate->scale_with_cores) {
    spec::print(stderr,
                "tpuboard: learning_rate.scale_with_cores makes the learning rate {} times as "
                "large, and the batch of {} stays; run.scale_batch (--scale-batch) scales both\n",
                config.cores, config.batch);
  }
  if (resumed) {
    spec::print("resumed at step {}\n", trainer.first_step());
  }
  for (size_t i = 0; i < config.inputs.size(); ++i) {
    if (config.inputs[i].numbers && config.inputs[i].classes == 0 && trainer.has_data()) {
      const auto [low, high] = trainer.data().range(i);
      spec::print(stderr,
                  "tpuboard: {} go from {} to {}; they are not checked against the classes of the "
                  "program, since neither data.classes nor the program tells how many there are\n",
                  config.inputs[i].name, low, high);
    }
  }
  if (!config.checkpoint.empty() && !trainer.has_data()) {
    spec::print(stderr, "tpuboard: no checkpoint is written, since --no-data computes no state\n");
  }
}

// A short training that is thrown away; its curve stays.
void find_rate(const TrainArguments& arguments, const TrainConfig& config, Trainer& trainer) {
  training::RateSearch search;
  search.steps = arguments.steps > 0 ? arguments.steps : search.steps;
  const StopSignals signals;
  std::optional<spec::TextBar> bar(std::in_place, "learning rates");
  const auto points = training::find_rate(trainer, config, search, [&] {
    bar->count(static_cast<uint64_t>(trainer.steps_run()), static_cast<uint64_t>(search.steps),
               "steps");
    return StopSignals::received() != 0;
  });
  bar.reset();
  training::write_rates(arguments.out, points);
  const double best = training::best_rate(points);
  const std::string curve = (fs::path(arguments.out) / "learning_rates.svg").string();
  if (best > 0) {
    spec::print("{}; the loss falls fastest at a learning rate of {:.3g}; curve: {}\n",
                spec::counted(points.size(), "step"), best, curve);
  } else {
    spec::print("{}; the loss falls nowhere; curve: {}\n", spec::counted(points.size(), "step"),
                curve);
  }
}

void train(const TrainArguments& arguments) {
  serve_first_rank(arguments.board.open);
  const auto start = Clock::now();
  check_usage(arguments);
  const JsonOutput json(arguments.json);
  TrainConfig config = configuration(arguments);
  OpenOptions options = arguments.board.open;
  if (arguments.monitor) {
    options.progress_seconds = 0;  // the view has it
  }
  make_folder(arguments.out);
  const FolderLock lock(arguments.out);  // two runs would write over each other's checkpoints
  if (options.connect.empty()) {
    options.sim.tile_folder = arguments.out;  // a worker's folders are its own
  }
  const fs::path folder = checkpoint_folder(arguments.out, config);
  RunCheckpoints checkpoints(folder, config.checkpoints);
  std::optional<Checkpoint> from;
  if (arguments.resume) {
    from = checkpoints.resume();
    if (arguments.accept_changes) {
      from->input.clear();
    }
  } else if (!options.sim.no_data && keeps_checkpoints(arguments, config)) {
    checkpoints.open();
  }
  check_outputs(arguments, config, folder);
  const TrainPrograms programs = train_programs(config, options);
  checkpoints.set_program(programs.train.source_sha256);
  const XprofFolder xprof(arguments.board.xprof, options);
  const Board board = Board::open(options);
  const TellUnwritten unwritten(board);
  std::optional<Executable> eval;
  if (!programs.eval.empty()) {
    eval = load_program(board, config.eval, programs.eval, 0, config.eval.ends_with(".tpuexe"));
  }
  const Executable program = load_program(board, config.train, programs.train.executable, 0,
                                          config.train.ends_with(".tpuexe"));
  set_classes(config, programs.train, program, arguments.config);
  Trainer trainer(board, config, program, eval, !options.sim.no_data, from ? &*from : nullptr);
  if (from) {
    checkpoints.check_parts(from->parts, checkpoints.parts(trainer), arguments.accept_changes);
    from.reset();
  }
  print_notes(trainer, config, arguments.resume);
  if (arguments.find_rate) {
    find_rate(arguments, config, trainer);
    xprof.write(board);
    write_record_file(arguments.board.record, board);
    return board.close();
  }
  monitor::Sampler sampler(board, {.command = "tpuboard train " + arguments.config,
                                   .show = monitor::live_view(stderr, arguments.monitor)});
  TrainRun run(arguments, config, trainer, checkpoints, options, programs, sampler);
  ProfileWindow profile(board);
  const StopSignals signals;  // until the results are written
  const int signal = run.train();
  profile.close();
  sampler.stop();
  Attempts errors;
  run.write_results(signal, start, json, errors);
  profile.print(static_cast<double>(std::max<int64_t>(1, trainer.steps_run())));
  if (signal != 0) {
    spec::print(stderr, "tpuboard: {}\n", run.stop_text(signal));
  } else if (const std::string early = trainer.stopped_early(); !early.empty()) {
    spec::print("stopped after step {} of {}: {}\n", trainer.losses().size(),
                trainer.planned_steps(arguments.steps), early);
  }
  errors.attempt([&] { xprof.write(board); });
  errors.attempt([&] { write_record_file(arguments.board.record, board); });
  errors.attempt([&] { board.close(); });
  errors.attempt([&] { require_clean(run.left_unclean()); });
  errors.finish();
  if (signal != 0) {
    throw StoppedBySignal(signal);
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train as a configuration file says");
  auto arguments = std::make_shared<TrainArguments>();
  add_train_options(*command, *arguments);
  command->callback([arguments] { train(*arguments); });
}

}  // namespace tpu::driver
