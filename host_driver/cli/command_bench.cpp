// tpuboard bench: how fast the simulation runs on this host. Prints one figure a line with its bar,
// where there is one. Figures of single engines come from the benchmark programs beside tpuboard.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>

#include "cli/commands.hpp"
#include "cli/measure.hpp"
#include "cli/options.hpp"
#include "cli/program_file.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr double kCommandsBar = 200000;
constexpr uint64_t kInstructionsBar = 20000;

struct BenchArguments {
  BoardArguments board;
  std::string program;
  int64_t launches = 50;
};

// Launches `program` again and again on zeros; donated state goes round.
void bench_program(const Board& board, const Executable& program, int64_t launches) {
  std::vector<Array> arguments;
  for (size_t i = 0; i < program.arguments().size(); ++i) {
    const ParameterInfo& info = program.arguments()[i];
    HostArray zero{info.dtype, info.shape, {}};
    zero.bytes.resize(element_count(info.shape) * dtype_bytes(info.dtype));
    arguments.push_back(program.put(i, zero));
  }
  board.synchronize();
  Window window(board, program.partitions());
  window.open();
  const auto start = std::chrono::steady_clock::now();
  RunResult result;
  for (int64_t n = 0; n < launches; ++n) {
    result = program.run(arguments);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const int to = program.arguments()[i].donated_to;
      if (to >= 0) {
        arguments[i] = result.outputs[static_cast<size_t>(to)];
      }
    }
  }
  result.done.wait();
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  window.close();
  const auto n = static_cast<double>(launches);
  fmt::print("{:<44} {:>14.0f}\n", "launches a second of host time", n / wall);
  fmt::print("{:<44} {:>14.0f}  bar {:.0f} with --no-data\n",
             "engine commands a second of host time", static_cast<double>(window.commands()) / wall,
             kCommandsBar);
  fmt::print("{:<44} {:>14.1f}\n", "simulated us a launch", window.seconds() / n * 1e6);
  fmt::print("{:<44} {:>14.2f}\n", "MXU %", 100 * window.mxu_utilization());
  fmt::print("{:<44} {:>14.2f}\n", "idle %", 100 * window.idle());
  const auto harts = window.hart_instructions();
  const uint64_t all = std::accumulate(harts.begin(), harts.end(), uint64_t{0});
  fmt::print("{:<44} {:>14.0f}  bar {}\n", "hart instructions a launch and core",
             static_cast<double>(all) / n / static_cast<double>(harts.size()), kInstructionsBar);
}

// Programs named tpuboard-bench-* beside this one, in the order of their names.
void bench_siblings() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::filesystem::path> programs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name.find("-bench") != std::string::npos) {
      programs.push_back(entry.path());
    }
  }
  std::sort(programs.begin(), programs.end());
  for (const auto& program : programs) {
    fmt::print("-- {}\n", program.filename().string());
    std::fflush(stdout);
    const std::string command = "'" + program.string() + "'";
    if (std::system(command.c_str()) != 0) {
      throw Error(ErrorCode::kInternal, fmt::format("{} failed", program.string()));
    }
  }
}

void bench(const BenchArguments& arguments) {
  const OpenOptions options = open_options(arguments.board);
  const auto start = std::chrono::steady_clock::now();
  if (!arguments.program.empty()) {
    const std::vector<std::byte> image = program_bytes(arguments.program, options);
    const Board board = Board::open(options);
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{:<44} {:>14.3f}\n", "seconds to open the board", wall);
    bench_program(board, board.load(image), arguments.launches);
    board.close();
  }
  bench_siblings();
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure the speed of the simulation on this host");
  auto arguments = std::make_shared<BenchArguments>();
  command
      ->add_option("program", arguments->program,
                   "Executable or graph to launch again and again on zeros")
      ->type_name("PROGRAM");
  command->add_option("--launches", arguments->launches, "Launches of the program")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  add_board_options(*command, arguments->board);
  command->callback([arguments] { bench(*arguments); });
}

}  // namespace tpu::driver
