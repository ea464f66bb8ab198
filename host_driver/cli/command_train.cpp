// tpuboard train: a training run from a configuration file; progress, run.json, checkpoint.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/digest.hpp"
#include "cli/npy.hpp"
#include "cli/options.hpp"
#include "cli/program_file.hpp"
#include "cli/trainer.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using Clock = std::chrono::steady_clock;

struct TrainArguments {
  BoardArguments board;
  std::string config;
  std::string out = "out/train";
  std::string json;
  int64_t steps = 0;
  int64_t epochs = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One line that is written over on a terminal; nothing but epoch lines elsewhere.
class ProgressBar {
 public:
  explicit ProgressBar(const Trainer& trainer)
      : trainer_(trainer), terminal_(isatty(fileno(stdout)) != 0), start_(Clock::now()) {
    start_cycles_ = trainer.board().now();
  }

  void step(const Progress& at) {
    constexpr double kMinSeconds = 0.1;
    constexpr int64_t kWidth = 24;
    if (!terminal_ || (seconds_since(shown_) < kMinSeconds && at.step != at.steps)) {
      return;
    }
    shown_ = Clock::now();
    const auto done = static_cast<size_t>(kWidth * at.step / at.steps);
    const double cycles = static_cast<double>(trainer_.board().now() - start_cycles_);
    const double steps = static_cast<double>(at.step);
    fmt::print(
        "\r[{:<{}}] {}/{}  epoch {}  loss {:.4f}  {:.1f} us/step  MXU {:.2f} %  {:.1f} "
        "steps/s \x1b[K",
        std::string(done, '#'), kWidth, at.step, at.steps, at.epoch, at.loss,
        cycles / steps / trainer_.board().clock_hz() * 1e6,
        100.0 * steps * static_cast<double>(trainer_.program().matmul_flops()) /
            (cycles * static_cast<double>(trainer_.board().peak_flops_per_cycle())),
        steps / seconds_since(start_));
    std::fflush(stdout);
  }

  void epoch(const EpochResult& result) {
    const Window& window = trainer_.window();
    const double steps = static_cast<double>(trainer_.losses().size());
    fmt::print("{}epoch {:>3}  loss {:.4f}  {:.1f} us/step  MXU {:.2f} %  idle {:.2f} %",
               terminal_ ? "\r\x1b[K" : "", result.epoch, result.train_loss,
               window.seconds() / steps * 1e6, 100 * window.mxu_utilization(), 100 * window.idle());
    if (result.eval) {
      fmt::print("  test accuracy {:.2f} %", 100 * result.eval->accuracy);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  const Trainer& trainer_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  uint64_t start_cycles_ = 0;
};

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json report(const Trainer& trainer, const TrainArguments& arguments,
                              const std::string& digest, double wall_seconds) {
  const Window& window = trainer.window();
  const auto steps = static_cast<double>(trainer.losses().size());
  const EpochResult& last = trainer.epochs().back();
  nlohmann::ordered_json json;
  json["test_accuracy"] =
      number_or_null(last.eval ? std::optional(last.eval->accuracy) : std::nullopt);
  json["test_loss"] = number_or_null(last.eval ? last.eval->loss : std::nullopt);
  json["train_loss"] = last.train_loss;
  json["steps"] = trainer.losses().size();
  json["sim_seconds_per_step"] = window.seconds() / steps;
  json["sim_cycles_per_step"] = static_cast<double>(window.cycles()) / steps;
  json["sim_cycles"] = window.cycles();
  json["sim_cycles_per_core"] = window.run_cycles();
  json["mxu_utilization"] = window.mxu_utilization();
  json["idle"] = window.idle();
  json["wall_seconds"] = wall_seconds;
  json["digest"] = digest;
  json["lockstep"] = {{"tiles", window.last().lockstep_tiles},
                      {"mismatches", window.last().lockstep_mismatches}};
  json["instructions_per_hart"] = window.hart_instructions();
  json["engine_commands"] = window.commands();
  json["late_calls"] = window.last().late_calls;
  json["board"] = trainer.board().name();
  json["transport"] = arguments.board.transport;
  json["epochs"] = nlohmann::ordered_json::array();
  for (const EpochResult& epoch : trainer.epochs()) {
    json["epochs"].push_back(
        {{"epoch", epoch.epoch},
         {"train_loss", epoch.train_loss},
         {"test_accuracy",
          number_or_null(epoch.eval ? std::optional(epoch.eval->accuracy) : std::nullopt)}});
  }
  json["losses"] = trainer.losses();
  return json;
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2) + "\n";
  write_file(path, std::as_bytes(std::span(text)));
}

void write_checkpoint(const std::filesystem::path& folder, const std::vector<HostArray>& state,
                      size_t step, const std::string& digest) {
  std::filesystem::create_directories(folder);
  nlohmann::ordered_json json;
  json["step"] = step;
  json["digest"] = digest;
  json["leaves"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < state.size(); ++i) {
    const std::string name = fmt::format("{}.npy", i);
    write_npy((folder / name).string(), state[i]);
    json["leaves"].push_back(
        {{"file", name}, {"dtype", dtype_name(state[i].dtype)}, {"shape", state[i].shape}});
  }
  write_json((folder / "checkpoint.json").string(), json);
}

void train(const TrainArguments& arguments) {
  const auto start = Clock::now();
  TrainConfig config = load_train_config(arguments.config);
  config.epochs = arguments.epochs > 0 ? arguments.epochs : config.epochs;
  const OpenOptions options = open_options(arguments.board);
  const std::vector<std::byte> train_image = program_bytes(config.train, options);
  const std::vector<std::byte> eval_image =
      config.eval.empty() ? std::vector<std::byte>() : program_bytes(config.eval, options);
  const Board board = Board::open(options);
  std::optional<Executable> eval;
  if (!eval_image.empty()) {
    eval = board.load(eval_image);
  }
  Trainer trainer(board, config, board.load(train_image), eval);
  ProgressBar bar(trainer);
  trainer.train(
      arguments.steps, [&](const Progress& at) { bar.step(at); },
      [&](const EpochResult& result) { bar.epoch(result); });

  const std::vector<HostArray> state = trainer.state();
  Digest digest;
  for (const HostArray& leaf : state) {
    digest.add(leaf);
  }
  const std::string hash = digest.finish();
  const std::filesystem::path out(arguments.out);
  std::filesystem::create_directories(out);
  if (!config.checkpoint.empty()) {
    write_checkpoint(out / config.checkpoint, state, trainer.losses().size(), hash);
  }
  const nlohmann::ordered_json json = report(trainer, arguments, hash, seconds_since(start));
  write_json((out / "run.json").string(), json);
  if (!arguments.json.empty()) {
    write_json(arguments.json, json);
  }
  const BoardCounters last = trainer.window().last();
  board.close();
  if (last.lockstep_mismatches > 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{} of {} lockstep tiles differ\n{}", last.lockstep_mismatches,
                            last.lockstep_tiles, last.lockstep_text));
  }
  if (last.check_findings > 0) {
    throw Error(ErrorCode::kInternal, fmt::format("{} unsynchronised accesses in the program\n{}",
                                                  last.check_findings, last.check_text));
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
  command->add_option("--out,--out-dir", arguments->out, "Folder for run.json and the checkpoint")
      ->capture_default_str()
      ->type_name("DIR");
  command->add_option("--json", arguments->json, "A second copy of run.json")->type_name("FILE");
  add_board_options(*command, arguments->board);
  command->callback([arguments] { train(*arguments); });
}

}  // namespace tpu::driver
