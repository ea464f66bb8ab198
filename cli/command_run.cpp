// tpuboard run: one launch of any executable (or some), NumPy files in and out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

#include "cli/attempts.hpp"
#include "cli/commands.hpp"
#include "cli/folded.hpp"
#include "cli/options.hpp"
#include "cli/profile.hpp"
#include "cli/program_file.hpp"
#include "cli/program_inputs.hpp"
#include "cli/record_file.hpp"
#include "cli/unwritten.hpp"
#include "cli/xprof_folder.hpp"
#include "figures/measure.hpp"
#include "file/files.hpp"
#include "format/digest.hpp"
#include "format/json_output.hpp"
#include "format/npy.hpp"
#include "job/sampler.hpp"
#include "readers/view.hpp"
#include "terminal/printable_text.hpp"
#include "terminal/text_bar.hpp"
#include "tpu/error.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver {
namespace {

struct RunArguments {
  BoardArguments board;
  std::string program;
  std::vector<std::string> inputs;
  std::string out_dir;
  std::string json;
  int64_t launches = 1;
  int device = 0;
  bool monitor = false;
  bool folded = false;
  std::string save_snapshot;
};

// The program's name in a snapshot; its arguments are there by number.
constexpr const char* kProgramItem = "program";

std::string output_file(const RunArguments& arguments, size_t k) {
  return fmt::format("{}/{}.npy", arguments.out_dir, k);
}

// The outputs of the program do not take the place of a file that it is run from.
void check_outputs(const Executable& program, const RunArguments& arguments,
                   const std::vector<std::string>& inputs) {
  for (size_t k = 0; k < program.results().size() && !arguments.out_dir.empty(); ++k) {
    refuse_overwrite(output_file(arguments, k), inputs);
  }
}

// Program and arguments of the run that saved the board.
std::pair<Executable, std::vector<Array>> take_saved(const Board& board, const std::string& file) {
  SnapshotItems items = board.take_snapshot_items();
  const auto program = items.programs.find(kProgramItem);
  if (program == items.programs.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: has no saved run; give the program to run", file));
  }
  std::vector<Array> arguments;
  for (size_t i = 0; i < program->second.arguments().size(); ++i) {
    const auto array = items.arrays.find(std::to_string(i));
    if (array == items.arrays.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: the snapshot does not have argument {} of the run", file, i));
    }
    arguments.push_back(array->second);
  }
  return {program->second, std::move(arguments)};
}

void save_run(const Board& board, const std::string& file, const Executable& program,
              const std::vector<Array>& arguments) {
  SnapshotItems items;
  items.programs[kProgramItem] = program;
  for (size_t i = 0; i < arguments.size(); ++i) {
    items.arrays[std::to_string(i)] = arguments[i];
  }
  board.save_snapshot(file, items);
}

// Launches one after the other; donated arguments are replaced by their results. Host seconds of
// each.
std::vector<double> launch(const Executable& program, std::vector<Array>& arguments, int64_t times,
                           RunResult& result, monitor::Sampler& sampler, bool with_bar) {
  spec::TextBar bar("run", spec::kLongSeconds);
  std::vector<double> seconds;
  for (int64_t n = 0; n < times; ++n) {
    result = {};
    const auto start = std::chrono::steady_clock::now();
    result = program.run(arguments);
    result.done.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds.push_back(took.count());
    if (with_bar) {
      bar.count(static_cast<uint64_t>(n) + 1, static_cast<uint64_t>(times), "launches");
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      const int to = program.arguments()[i].donated_to;
      if (to >= 0) {
        arguments[i] = result.outputs[static_cast<size_t>(to)];
      }
    }
    sampler.progress({.step = n + 1, .steps = times, .epoch = 0, .loss = {}, .values = {}});
  }
  return seconds;
}

nlohmann::ordered_json figures(const Window& window, const std::vector<double>& seconds,
                               const std::optional<std::string>& digest, const Board& board) {
  nlohmann::ordered_json json;
  json["sim_cycles"] = window.cycles();
  json["sim_cycles_per_core"] = window.run_cycles();
  json["sim_seconds"] = window.seconds();
  json["launches"] = seconds.size();
  json["wall_seconds"] = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  json["launch_seconds"] = seconds;
  json["mxu_utilization"] = window.mxu_utilization();
  json["idle"] = window.idle();
  json["instructions_per_hart"] = window.hart_instructions();
  json["engine_commands"] = window.commands();
  json["hbm_read_bytes_per_core"] = window.hbm_read_bytes();
  json["hbm_written_bytes_per_core"] = window.hbm_written_bytes();
  json["link_bytes_per_core"] = window.link_bytes();
  for (const NamedCounter& counter : window.counters()) {
    json["counters"][std::string(counter.name)] = counter.cores;
  }
  json["digest"] = digest ? nlohmann::ordered_json(*digest) : nullptr;
  json["lockstep"] = lockstep_figures(window.last());
  json["late_calls"] = window.last().late_calls;
  json["recoveries"] = board.peek().recoveries;
  json["board"] = board.name();
  return json;
}

Executable load_on(const Board& board, const std::vector<std::byte>& image,
                   const RunArguments& arguments) {
  const size_t devices = board.devices().size();
  if (static_cast<size_t>(arguments.device) >= devices) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--device {}: the board has the devices 0 to {}", arguments.device,
                            devices - 1));
  }
  Executable program = load_program(board, arguments.program, image, arguments.device);
  if (arguments.device != 0 && program.partitions() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--device {}: {} is a program for {} cores, which are those from 0 on; "
                            "leave the option out",
                            arguments.device, program.name(), program.partitions()));
  }
  return program;
}

// The file of one output, as long as it can be written.
class OutputNpy {
 public:
  OutputNpy(Attempts& attempts, const std::string& path, const Array& array) : attempts_(attempts) {
    if (attempts_.attempt([&] { file_.emplace(path); })) {
      const std::string header = npy_header(array.dtype(), array.shape());
      write([&](FileWriter& file) { file.add(std::as_bytes(std::span(header))); });
    }
  }
  template <typename Action>
  void write(const Action& action) {
    if (file_ && !attempts_.attempt([&] { action(*file_); })) {
      file_.reset();
    }
  }

 private:
  Attempts& attempts_;
  std::optional<FileWriter> file_;
};

// Files and digest of the outputs, piece by piece; a file that cannot be written stops no other.
// Without data in, the board without data has none to give out: its outputs are zeros, whose bytes
// the host need not have.
std::optional<std::string> take_outputs(const RunResult& result, const RunArguments& arguments,
                                        const OpenOptions& options, Attempts& attempts) {
  const bool zeros = options.sim.no_data && options.transport == "sim" && arguments.inputs.empty();
  Digest digest(Digest::Zeros::kCounted);
  for (size_t k = 0; k < result.outputs.size(); ++k) {
    const Array& array = result.outputs[k];
    std::optional<OutputNpy> file;
    if (!arguments.out_dir.empty()) {
      file.emplace(attempts, output_file(arguments, k), array);
    }
    digest.begin(array.dtype(), array.shape());
    if (zeros) {
      const uint64_t bytes = byte_count(array.dtype(), array.shape());
      digest.add_zeros(bytes);
      if (file) {
        file->write([&](FileWriter& to) { to.add_zeros(bytes); });
      }
    } else {
      // Without data the cores compute nothing, so that their copies may well differ.
      array.read_pieces(
          [&](std::span<const std::byte> piece) {
            digest.add_bytes(piece);
            if (file) {
              file->write([&](FileWriter& to) { to.add(piece); });
            }
          },
          options.sim.no_data ? "" : fmt::format("output {}", k));
    }
    if (file) {
      file->write([](FileWriter& to) { to.finish(); });
    }
  }
  if (options.sim.no_data) {
    return std::nullopt;  // nothing was computed
  }
  return digest.finish();
}

// Without a program, the saved run goes on.
bool goes_on(const RunArguments& arguments) { return arguments.program.empty(); }

// Files that are read, none of which an output may replace.
std::vector<std::string> check_files(const RunArguments& arguments, const OpenOptions& options,
                                     const std::map<size_t, std::string>& files) {
  if (goes_on(arguments) && !files.empty()) {
    throw UsageError(
        "--in: the run of --from-snapshot has its arguments; name a program to "
        "run it with others");
  }
  std::vector<std::string> inputs = {goes_on(arguments) ? options.snapshot : arguments.program};
  std::transform(files.begin(), files.end(), std::back_inserter(inputs),
                 [](const auto& file) { return file.second; });
  std::vector<std::string> outputs = {arguments.json};
  if (!goes_on(arguments)) {
    outputs.push_back(arguments.save_snapshot);
  } else if (!arguments.save_snapshot.empty()) {
    need_writable(arguments.save_snapshot);  // a run that goes on may save to its file
  }
  keep_inputs(arguments.board, outputs, inputs);
  return inputs;
}

void run(const RunArguments& arguments) {
  serve_first_rank(arguments.board.open);
  const std::map<size_t, std::string> files = input_files(arguments.inputs);
  OpenOptions options = arguments.board.open;
  if (arguments.monitor) {
    options.progress_seconds = 0;  // the view has it
  }
  const std::vector<std::string> inputs = check_files(arguments, options, files);
  const JsonOutput json(arguments.json);
  std::optional<FolderLock> lock;  // outputs of two runs would be mixed
  if (!arguments.out_dir.empty()) {
    make_folder(arguments.out_dir);
    lock.emplace(arguments.out_dir);
    if (options.connect.empty()) {
      options.sim.tile_folder = arguments.out_dir;  // a worker's folders are its own
    }
  }
  std::vector<std::byte> image =
      goes_on(arguments) ? std::vector<std::byte>() : program_bytes(arguments.program, options);
  if (arguments.folded) {
    if (!arguments.save_snapshot.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--folded: a snapshot has all boards of the pod; leave out --save-snapshot");
    }
    std::tie(options, image) = fold(options, image, arguments.program);
  }
  const XprofFolder xprof(arguments.board.xprof, options);
  const Board board = Board::open(options);
  const TellUnwritten unwritten(board);
  auto [program, placed] = goes_on(arguments)
                               ? take_saved(board, options.snapshot)
                               : std::pair(load_on(board, image, arguments), std::vector<Array>());
  check_outputs(program, arguments, inputs);
  if (!goes_on(arguments)) {
    placed = place_inputs(program, files, options.sim.no_data);
  }
  Window window(board, program.devices());
  window.open();
  monitor::Sampler sampler(board, {.command = "tpuboard run " + inputs.front(),
                                   .show = monitor::live_view(stderr, arguments.monitor)});
  ProfileWindow profile(board);
  RunResult result;
  const std::vector<double> seconds =
      launch(program, placed, arguments.launches, result, sampler, !arguments.monitor);
  profile.close();
  sampler.stop();
  window.close();

  Attempts attempts;
  const std::optional<std::string> hash = take_outputs(result, arguments, options, attempts);
  if (json.wanted()) {
    attempts.attempt([&] { json.write(figures(window, seconds, hash, board)); });
  }
  spec::print("{}: {} cycles, {:.3f} us, MXU {:.2f} %, idle {:.2f} %{}\n", program.name(),
              window.cycles(), window.seconds() * 1e6, window.mxu_utilization() * 100,
              window.idle() * 100, hash ? ", digest " + hash->substr(0, 16) : "");
  profile.print(static_cast<double>(arguments.launches));
  if (!arguments.save_snapshot.empty()) {
    attempts.attempt([&] { save_run(board, arguments.save_snapshot, program, placed); });
  }
  attempts.attempt([&] { xprof.write(board); });
  attempts.attempt([&] { write_record_file(arguments.board.record, board); });
  attempts.attempt([&] { board.close(); });
  attempts.attempt([&] { require_clean(window.last()); });
  attempts.finish();
}

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Run an executable once");
  auto arguments = std::make_shared<RunArguments>();
  command
      ->add_option("program", arguments->program,
                   "Executable made by tpuc; none: continue that of --from-snapshot")
      ->type_name("OUT.tpuexe");
  command
      ->add_option("--in", arguments->inputs,
                   "Argument as a NumPy file: NUMBER=FILE.npy; with --no-data it may be left out")
      ->allow_extra_args(false)
      ->type_name("K=FILE.npy");
  command->add_option("--out-dir", arguments->out_dir, "Folder for the outputs 0.npy, 1.npy, ...")
      ->check(folder_named)
      ->type_name("DIR");
  command->add_option("--json", arguments->json, "Results of the run; -: standard output")
      ->type_name("FILE");
  CLI::Option* device =
      command->add_option("--device", arguments->device, "Core for a program of one core: TPU:N");
  device->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--launches", arguments->launches,
                   "Launches one after the other; results take the place of donated arguments")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--save-snapshot", arguments->save_snapshot,
                   "Save the whole board after the last launch, to continue from there")
      ->type_name("FILE");
  command
      ->add_option("--from-snapshot", arguments->board.open.snapshot,
                   "Open the board as it was saved, instead of booting it")
      ->type_name("FILE");
  command->add_flag("--monitor", arguments->monitor,
                    "Show metrics of the board, on standard error: a view, or lines of JSON where "
                    "that is not a terminal");
  add_folded_option(*command, arguments->folded);
  add_board_options(*command, arguments->board);
  command->parse_complete_callback([arguments, device] {
    if (arguments->program.empty() && arguments->board.open.snapshot.empty()) {
      throw CLI::RequiredError("program, or --from-snapshot of a run to continue,");
    }
    if (arguments->program.empty() && device->count() > 0) {
      throw UsageError(
          "--device: the run of --from-snapshot continues where it was; name a program to run it "
          "on "
          "another core");
    }
  });
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tpu::driver
