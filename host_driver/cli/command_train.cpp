// tpuboard train: a training run from a configuration file; progress, run.json, checkpoint.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/commands.hpp"
#include "cli/digest.hpp"
#include "cli/npy.hpp"
#include "cli/options.hpp"
#include "cli/profile.hpp"
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

// Loss, simulated time a step, MXU % and idle % while the run goes on: one line that is written
// over on a terminal, one line an epoch elsewhere.
class ProgressBar {
 public:
  explicit ProgressBar(const Trainer& trainer)
      : trainer_(trainer), terminal_(isatty(fileno(stdout)) != 0), start_(Clock::now()) {}

  void step(const Progress& at) {
    constexpr double kMinSeconds = 0.1;
    if (!terminal_) {
      return;
    }
    if (at.epoch != epoch_) {
      begin_epoch(at);
    } else if (seconds_since(shown_) < kMinSeconds && at.step != at.steps) {
      return;
    }
    shown_ = Clock::now();
    std::string text =
        fmt::format(" {}/{}{}{}", at.step, at.steps, loss_text(at.loss), live_figures(at.step));
    // A line that is longer than the terminal could not be written over: what matters least goes.
    const size_t columns = terminal_columns();
    for (const std::string& extra :
         {fmt::format("  epoch {}", at.epoch),
          fmt::format("  {:.1f} steps/s", static_cast<double>(at.step) / seconds_since(start_))}) {
      constexpr size_t kShortBar = 12;
      text += text.size() + extra.size() + kShortBar < columns ? extra : std::string();
    }
    constexpr size_t kLongBar = 24;
    constexpr size_t kBrackets = 3;  // and the last column stays free
    const size_t width = std::min(kLongBar, columns - std::min(columns, text.size() + kBrackets));
    const size_t done = width * static_cast<size_t>(at.step) / static_cast<size_t>(at.steps);
    fmt::print("\r[{:<{}}]{}\x1b[K", std::string(done, '#'), width, text);
    std::fflush(stdout);
  }

  void epoch(const EpochResult& result) {
    const Window& window = trainer_.window();
    const double steps = static_cast<double>(trainer_.losses().size());
    fmt::print("{}epoch {:>3}{}{}", terminal_ ? "\r\x1b[K" : "", result.epoch,
               loss_text(result.train_loss),
               figures(window.seconds() / steps, window.mxu_utilization(), window.idle()));
    if (result.eval) {
      fmt::print("  test accuracy {:.2f} %", 100 * result.eval->accuracy);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  static size_t terminal_columns() {
    constexpr size_t kUsual = 80;
    winsize size{};
    return ioctl(fileno(stdout), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
  }

  std::string loss_text(double loss) const {
    return trainer_.has_data() ? fmt::format("  loss {:.4f}", loss) : std::string();
  }

  static std::string figures(double seconds, double mxu, double idle) {
    return fmt::format("  {:.1f} us/step  MXU {:.2f} %  idle {:.2f} %", seconds * 1e6, 100 * mxu,
                       100 * idle);
  }

  // Windows of the board's time are measured by epoch; within one the debug port tells the same
  // without taking board time. Its first step only starts the clock.
  void begin_epoch(const Progress& at) {
    epoch_ = at.epoch;
    first_step_ = at.step;
    first_cycle_ = trainer_.board().now();
    first_run_ = run_cycles();
  }

  uint64_t run_cycles() const {
    const std::vector<uint64_t> cores = trainer_.board().run_cycles();
    const auto used = std::min<size_t>(cores.size(), trainer_.program().partitions());
    return std::accumulate(cores.begin(), cores.begin() + static_cast<ptrdiff_t>(used),
                           uint64_t{0});
  }

  // Since the first step of the epoch; of the epochs before while there is nothing else to tell.
  std::string live_figures(int64_t step) const {
    const Window& window = trainer_.window();
    const Board& board = trainer_.board();
    const auto cycles = static_cast<double>(board.now() - first_cycle_);
    if (step == first_step_ || cycles <= 0) {
      const int64_t before = first_step_ - 1;
      return before < 1 ? std::string()
                        : figures(window.seconds() / static_cast<double>(before),
                                  window.mxu_utilization(), window.idle());
    }
    const auto steps = static_cast<double>(step - first_step_);
    const double core_cycles = cycles * trainer_.program().partitions();
    const auto run = static_cast<double>(run_cycles() - first_run_);
    const double mxu = steps * static_cast<double>(trainer_.program().matmul_flops()) /
                       (cycles * static_cast<double>(board.peak_flops_per_cycle()));
    return figures(cycles / steps / board.clock_hz(), mxu,
                   std::clamp(1.0 - run / core_cycles, 0.0, 1.0));
  }

  const Trainer& trainer_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  int64_t epoch_ = 0;
  int64_t first_step_ = 0;
  uint64_t first_cycle_ = 0;
  uint64_t first_run_ = 0;
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
  const bool has_data = trainer.has_data();
  json["train_loss"] = number_or_null(has_data ? std::optional(last.train_loss) : std::nullopt);
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
         {"train_loss", number_or_null(has_data ? std::optional(epoch.train_loss) : std::nullopt)},
         {"test_accuracy",
          number_or_null(epoch.eval ? std::optional(epoch.eval->accuracy) : std::nullopt)}});
  }
  json["step_seconds"] = trainer.step_seconds();
  json["losses"] = has_data ? trainer.losses() : std::vector<float>();
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
  OpenOptions options = open_options(arguments.board);
  const std::filesystem::path out(arguments.out);
  std::filesystem::create_directories(out);
  options.tile_folder = arguments.out;
  const std::vector<std::byte> train_image = program_bytes(config.train, options);
  const std::vector<std::byte> eval_image =
      config.eval.empty() ? std::vector<std::byte>() : program_bytes(config.eval, options);
  const Board board = Board::open(options);
  std::optional<Executable> eval;
  if (!eval_image.empty()) {
    eval = board.load(eval_image);
  }
  Trainer trainer(board, config, board.load(train_image), eval, !options.no_data);
  ProgressBar bar(trainer);
  ProfileWindow profile(board);
  trainer.train(
      arguments.steps, [&](const Progress& at) { bar.step(at); },
      [&](const EpochResult& result) { bar.epoch(result); });

  profile.close();
  const std::vector<HostArray> state = trainer.state();
  Digest digest;
  for (const HostArray& leaf : state) {
    digest.add(leaf);
  }
  const std::string hash = digest.finish();
  if (!config.checkpoint.empty()) {
    write_checkpoint(out / config.checkpoint, state, trainer.losses().size(), hash);
  }
  const nlohmann::ordered_json json = report(trainer, arguments, hash, seconds_since(start));
  write_json((out / "run.json").string(), json);
  if (!arguments.json.empty()) {
    write_json(arguments.json, json);
  }
  profile.print(std::max<double>(1, static_cast<double>(trainer.losses().size())));
  board.close();
  require_clean(trainer.window().last());
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
