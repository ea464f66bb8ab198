// tpuboard bench: how fast the simulation runs on this host; one figure a line with its bar. The
// board runs here; matrix engine and control hart alone run in the programs mxu-bench and
// hart-bench beside tpuboard, because OpenBLAS takes its instruction set from the environment at
// start.
#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <tuple>

#include "cli/attempts.hpp"
#include "cli/commands.hpp"
#include "cli/folded.hpp"
#include "cli/host_limits.hpp"
#include "cli/options.hpp"
#include "cli/own_files.hpp"
#include "cli/profile.hpp"
#include "cli/program_file.hpp"
#include "cli/record_file.hpp"
#include "cli/unwritten.hpp"
#include "cli/xprof_folder.hpp"
#include "figures/measure.hpp"
#include "format/json_output.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMxuBar = 0.7;             // times OpenBLAS
constexpr double kHartBar = 50;             // million instructions a second
constexpr double kInstructionsBar = 20000;  // a launch
constexpr double kCommandsBar = 200000;     // a second

struct BenchArguments {
  BoardArguments board;
  std::string program;
  std::string json;
  int64_t launches = 100;
  bool with_data = false;
  bool dense = false;
  bool folded = false;
};

// Figures as lines and as JSON: {name: {value, unit, bar, met}}.
class Report {
 public:
  void figure(const std::string& key, const std::string& what, double value, int digits,
              const std::string& unit) {
    spec::print("{:<52}{:>12.{}f}  {}\n", what, value, digits, unit);
    json_[key] = {{"value", value}, {"unit", unit}};
    std::fflush(stdout);
  }

  // `bar` is a lower limit, or an upper one when `at_most`.
  void figure(const std::string& key, const std::string& what, double value, int digits,
              const std::string& unit, double bar, bool at_most) {
    const bool met = at_most ? value <= bar : value >= bar;
    spec::print("{:<52}{:>12.{}f}  {:<22} bar: at {} {:.{}f}  {}\n", what, value, digits, unit,
                at_most ? "most" : "least", bar, bar < 1 ? 1 : 0, met ? "met" : "MISSED");
    json_[key] = {
        {"value", value}, {"unit", unit}, {at_most ? "at_most" : "at_least", bar}, {"met", met}};
    std::fflush(stdout);
  }

  void missing(const std::string& key, const std::string& what, const std::string& why) {
    spec::print("{:<52}{:>12}  {}\n", what, "-", why);
    json_[key] = {{"value", nullptr}, {"why", why}};
  }

  const Json& json() const { return json_; }
  void add(const std::string& key, Json value) { json_[key] = std::move(value); }

 private:
  Json json_;
};

// Runs a benchmark program beside this one; the JSON object it prints. Null when it is not there.
Json helper(const std::string& name, const std::string& arguments,
            const std::string& environment = {}) {
  const std::filesystem::path program = folder_of_this_program() / name;
  if (!std::filesystem::exists(program)) {
    return nullptr;
  }
  const std::string command =
      fmt::format("{} '{}' --json {}", environment, program.string(), arguments);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    throw Error(ErrorCode::kInternal, fmt::format("cannot run {}", command));
  }
  std::string text;
  char part[512];
  while (std::fgets(part, sizeof part, pipe) != nullptr) {
    text += part;
  }
  const int status = pclose(pipe);
  const Json json = Json::parse(text, nullptr, false);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || json.is_discarded()) {
    throw Error(ErrorCode::kInternal, fmt::format("{} failed", command));
  }
  return json;
}

const char* const kBuildThem = "not beside tpuboard; build with cmake --workflow --preset release";

bool wants_best(const SimOptions& sim) { return sim.simd.empty() || sim.simd == "auto"; }

void bench_mxu(Report& report, const std::string& simd) {
  const std::string what = fmt::format("MXU engine 512^3, 1 thread, {}", simd);
  const std::string core = simd == "avx2" ? "OPENBLAS_CORETYPE=Haswell" : "";
  const Json json = helper("mxu-bench", "--simd " + simd, "OPENBLAS_NUM_THREADS=1 " + core);
  const std::string key = "mxu_" + simd;
  if (json.is_null()) {
    report.missing(key, what, std::string("mxu-bench is ") + kBuildThem);
    return;
  }
  const double ours = json["mxu_gflops"];
  const double theirs = json["openblas_gflops"];
  report.figure(key + "_gflops", what, ours, 1, "GFLOP/s");
  const std::string against = fmt::format("  against OpenBLAS sgemm, {}", simd);
  if (theirs <= 0) {
    report.missing(key + "_against_openblas", against,
                   "OpenBLAS is missing; install it with: apt-get install libopenblas0-pthread");
    return;
  }
  report.figure("openblas_" + simd + "_gflops",
                fmt::format("  OpenBLAS sgemm ({})", json["openblas_core"].get<std::string>()),
                theirs, 1, "GFLOP/s");
  report.figure(key + "_against_openblas", against, ours / theirs, 2, "x", kMxuBar, false);
}

void bench_hart(Report& report) {
  const std::string what = "control hart, loop of loads, stores, branches, mul";
  const Json json = helper("hart-bench", "");
  if (json.is_null()) {
    report.missing("hart_mips", what, std::string("hart-bench is ") + kBuildThem);
    return;
  }
  report.figure("hart_mips", what, json["hart_mips"], 0, "M instructions/s", kHartBar, false);
}

// The demo's step, where the examples are; empty otherwise.
std::string demo_step() {
  const auto shared = shared_files();
  const auto graph = shared / "examples" / "mnist_mlp" / "train_step.mlirbc";
  return !shared.empty() && std::filesystem::exists(graph) ? graph.string() : std::string();
}

// What an argument starts from: zeros, or with `dense`, if it has floats, the same small number
// everywhere.
Array start_of(const Executable& program, size_t index, bool dense) {
  const auto& argument = program.arguments()[index];
  const bool half = argument.dtype == DType::kBf16;
  if (!dense || (argument.dtype != DType::kF32 && !half)) {
    return program.zeros(index);
  }
  constexpr float kNumber = 1.0F / 32;  // sums of thousands of products stay small
  const std::span number = std::as_bytes(std::span(&kNumber, 1));
  const std::vector<int64_t> repeated(argument.shape.size(), 0);
  return program.put(
      index, HostView(argument.dtype, argument.shape, half ? number.subspan(2) : number, repeated));
}

struct Arguments {
  const Executable& program;
  std::vector<Array> arrays;

  Arguments(const Executable& of, bool dense) : program(of) {
    for (size_t i = 0; i < program.arguments().size(); ++i) {
      arrays.push_back(start_of(program, i, dense));
    }
  }

  // Launches again and again; donated state goes round.
  void launch(int64_t times) {
    RunResult result;
    for (int64_t n = 0; n < times; ++n) {
      result = program.run(arrays);
      for (size_t i = 0; i < arrays.size(); ++i) {
        const int to = program.arguments()[i].donated_to;
        if (to >= 0) {
          arrays[i] = result.outputs[static_cast<size_t>(to)];
        }
      }
    }
    result.done.wait();
  }
};

// Measured before the board has threads.
std::optional<HostLimits> limits_for(const SimOptions& sim) {
  if (!sim.profile) {
    return std::nullopt;
  }
  const std::vector<std::string> simds = host_simd();
  const std::string best = simds.empty() ? "" : simds.back();
  return measure_host_limits(wants_best(sim) ? best : sim.simd);
}

// Files at the end are tried: the figures come first.
void bench_program(Report& report, const BenchArguments& arguments, const std::string& path,
                   Attempts& attempts) {
  OpenOptions options = arguments.board.open;
  options.sim.no_data =
      options.sim.no_data || (!arguments.with_data && !arguments.dense && !options.sim.profile);
  std::vector<std::byte> image = program_bytes(path, options);
  if (arguments.folded) {
    std::tie(options, image) = fold(options, image, path);
  }
  const XprofFolder xprof(arguments.board.xprof, options);
  const std::optional<HostLimits> limits = limits_for(options.sim);
  const Board board = Board::open(options);
  const TellUnwritten unwritten(board);
  const Executable program = load_program(board, path, image);
  Arguments inputs(program, arguments.dense);
  inputs.launch(1);
  board.synchronize();
  Window window(board, program.devices());
  const int64_t parts = std::min<int64_t>(5, arguments.launches);
  double launches_a_second = 0;
  double commands_a_second = 0;
  uint64_t commands = 0;
  const int64_t part = std::max<int64_t>(1, arguments.launches / parts);
  ProfileWindow profile(board, limits);
  for (int64_t n = 0; n < parts; ++n) {
    window.open();
    const auto start = std::chrono::steady_clock::now();
    inputs.launch(part);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    window.close();
    launches_a_second = std::max(launches_a_second, static_cast<double>(part) / wall.count());
    commands_a_second = std::max(commands_a_second,
                                 static_cast<double>(window.commands() - commands) / wall.count());
    commands = window.commands();
  }
  const auto launches = static_cast<double>(parts * part);
  profile.close();
  const auto harts = window.hart_instructions();
  const double most = static_cast<double>(*std::max_element(harts.begin(), harts.end()));
  report.figure("instructions_per_launch", "hart instructions a launch of the step, busiest hart",
                most / launches, 0, "", kInstructionsBar, true);
  const std::string what =
      fmt::format("engine commands a second{}", options.sim.no_data ? ", --no-data" : "");
  if (!options.sim.no_data) {
    report.figure("engine_commands", what, commands_a_second, 0, "/s");
  } else {
    report.figure("engine_commands", what, commands_a_second, 0, "/s", kCommandsBar, false);
  }
  report.figure("launches", "  launches of the step a second", launches_a_second, 1, "/s");
  report.figure("commands_per_launch", "  engine commands a launch",
                static_cast<double>(commands) / launches, 0, "");
  report.figure("sim_us_per_launch", "  simulated time a launch", window.seconds() / launches * 1e6,
                1, "us");
  if (options.sim.profile) {
    profile.print(launches);
    report.add("profile", profile.json(launches));
  }
  report.add("lockstep", lockstep_figures(window.last()));
  attempts.attempt([&] { xprof.write(board); });
  attempts.attempt([&] { write_record_file(arguments.board.record, board); });
  attempts.attempt([&] { board.close(); });
  attempts.attempt([&] { require_clean(window.last()); });
}

// Before anything is measured.
void require_one_kind(const BenchArguments& arguments) {
  const bool without_data = arguments.folded || arguments.board.open.sim.no_data;
  if (without_data && (arguments.with_data || arguments.dense)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: values are not computed; leave out --with-data and --dense",
                            arguments.folded ? "--folded" : "--no-data"));
  }
}

void bench(const BenchArguments& arguments) {
  serve_first_rank(arguments.board.open);
  require_one_kind(arguments);
  keep_inputs(arguments.board, {arguments.json}, {arguments.program});
  const JsonOutput json(arguments.json);
  Report report;
  Attempts attempts;
  const std::vector<std::string> simds = host_simd();
  if (simds.empty()) {
    report.missing("mxu_avx2", "MXU engine 512^3, 1 thread", "this host has neither AVX2 nor more");
  }
  for (const std::string& simd : simds) {
    if (wants_best(arguments.board.open.sim) || arguments.board.open.sim.simd == simd) {
      bench_mxu(report, simd);
    }
  }
  bench_hart(report);
  const std::string path = arguments.program.empty() ? demo_step() : arguments.program;
  if (path.empty()) {
    report.missing("engine_commands", "board model",
                   "name a program: tpuboard bench PROGRAM.mlirbc");
  } else {
    bench_program(report, arguments, path, attempts);
  }
  if (json.wanted()) {
    attempts.attempt([&] { json.write(report.json()); });
  }
  attempts.finish();
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure the speed of the simulation on this host");
  auto arguments = std::make_shared<BenchArguments>();
  command
      ->add_option("program", arguments->program,
                   "Executable or graph to launch again and again on zeros; without it the demo's "
                   "step, examples/mnist_mlp/train_step.mlirbc")
      ->type_name("PROGRAM");
  command->add_option("--launches", arguments->launches, "Launches of the program")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--with-data", arguments->with_data,
                    "Do the arithmetic too, as with --profile; otherwise as with --no-data");
  command->add_flag("--dense", arguments->dense,
                    "Do the arithmetic too, on non-zero floats: products with zeros "
                    "are skipped, and memory that holds only zeros is given back");
  command->add_option("--json", arguments->json, "The results as JSON; -: standard output")
      ->type_name("FILE");
  add_folded_option(*command, arguments->folded);
  add_board_options(*command, arguments->board);
  command->callback([arguments] { bench(*arguments); });
}

}  // namespace tpu::driver
