// Options of the board.
#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "file/whole_file.hpp"
#include "files/files.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

constexpr double kMostTimeLimit = 1e9;  // as TPUBOARD_TIME_LIMIT

// Of numbers without sign, of which CLI11 takes -1 for the largest.
const CLI::Range kCounted(int64_t{0}, int64_t{1} << 62);

// Which part of the board and of the run --waves shows.
void add_waves_window(CLI::App& command, BoardArguments& arguments, CLI::Option* waves,
                      CLI::Option* steps) {
  SimOptions& sim = arguments.open.sim;
  command
      .add_option("--waves-scope", sim.waves_scopes,
                  "Instances in --waves, all below them too: board.chip0.core1, *.hart "
                  "(repeatable; default: all)")
      ->allow_extra_args(false)
      ->needs(waves)
      ->type_name("GLOB");
  CLI::Option* trigger =
      command.add_option("--waves-trigger", sim.waves_trigger,
                         "Event that --waves begins with: step=N, time=Nus, op=N, line=FILE:N, "
                         "dma=hbm:LOW..HIGH, sem=N>=VALUE, firmware=FUNCTION|ADDRESS, nan, "
                         "nonfinite, assertion, fault, watchdog, monitor");
  trigger->needs(waves)->excludes(steps)->type_name("EVENT");
  command
      .add_option("--waves-for", arguments.waves_for,
                  "How long --waves goes on behind its trigger (default: to the end)")
      ->needs(trigger)
      ->type_name("Ncycles|Nsteps");
  command
      .add_option("--waves-before", sim.waves_before_cycles,
                  "Cycles in --waves from before its trigger; without one, the last before the "
                  "run ends, faults, hangs or crashes")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->needs(waves)
      ->excludes(steps)
      ->type_name("CYCLES");
}

// The timeline and the profile.
void add_timeline_options(CLI::App& command, BoardArguments& arguments) {
  CLI::Option* timeline =
      command.add_option("--timeline", arguments.open.sim.timeline_path,
                         "Commands, waits and bandwidth of all cores, for https://ui.perfetto.dev");
  timeline->type_name("FILE.pftrace");
  command
      .add_option("--timeline-steps", arguments.timeline_steps,
                  "Steps of the run in --timeline, first and last (default: all)")
      ->needs(timeline)
      ->type_name("A..B");
  CLI::Option* xprof = command.add_option(
      "--xprof", arguments.xprof, "Profile of operations, for `xprof --logdir DIR` or TensorBoard");
  xprof->type_name("DIR");
  command
      .add_option("--xprof-steps", arguments.xprof_steps,
                  "Steps of the run in --xprof, first and last (default: all)")
      ->needs(xprof)
      ->type_name("A..B");
}

// The graph of a step.
void add_step_record_options(CLI::App& command, BoardArguments& arguments) {
  CLI::Option* record =
      command.add_option("--record", arguments.record, "A step as it ran, for `tpuboard report`");
  record->type_name("FILE.tpurec");
  command
      .add_option("--record-step", arguments.open.sim.record_step,
                  "Step of the run in --record, counted from 0")
      ->check(kCounted)
      ->needs(record)
      ->capture_default_str()
      ->type_name("N");
}

// Files of what can be seen of a run.
void add_record_options(CLI::App& command, BoardArguments& arguments) {
  command
      .add_option("--trace", arguments.open.sim.trace_path, "One text line for each engine command")
      ->type_name("FILE.txt");
  CLI::Option* waves =
      command.add_option("--waves", arguments.open.sim.waves_path, "Board-level signals");
  waves->type_name("FILE.fst");
  CLI::Option* steps = command.add_option("--waves-steps", arguments.waves_steps,
                                          "Steps of the run in --waves, first and last");
  steps->needs(waves)->capture_default_str()->type_name("A..B");
  add_waves_window(command, arguments, waves, steps);
  add_timeline_options(command, arguments);
  add_step_record_options(command, arguments);
  CLI::Option* mxu_waves = command.add_option("--mxu-waves", arguments.open.sim.mxu_waves_path,
                                              "Signals of the first Verilog matrix unit");
  mxu_waves->type_name("FILE.fst");
  command
      .add_option("--mxu-waves-tiles", arguments.mxu_waves_tiles,
                  "Tiles in --mxu-waves, first and last")
      ->needs(mxu_waves)
      ->capture_default_str()
      ->type_name("A..B");
}

void add_debugger_options(CLI::App& command, BoardArguments& arguments) {
  CLI::Option* gdb =
      command.add_option("--gdb", arguments.open.sim.gdb,
                         "GDB can connect here, to the control harts' firmware; :0 picks a port");
  gdb->type_name("[ADDRESS]:PORT");
  command
      .add_option("--firmware", arguments.open.firmware_file,
                  "Firmware of the control harts in place of the built-in one")
      ->type_name("FILE.elf");
  command
      .add_option("--firmware-log", arguments.open.sim.firmware_log,
                  "What the firmware logs and prints, with its cycle; - is standard error")
      ->type_name("FILE.txt");
  command
      .add_option("--trace-mmio", arguments.open.sim.mmio_trace_path,
                  "One text line for each register that firmware reads or writes, each doorbell "
                  "and each entry of the rings")
      ->type_name("FILE.txt");
  command
      .add_flag("--gdb-wait", arguments.open.sim.gdb_wait,
                "Nothing runs before a debugger says continue")
      ->needs(gdb);
}

}  // namespace

void add_board_options(CLI::App& command, BoardArguments& arguments) {
  command.add_option("--board", arguments.open.preset, "Board preset or file")
      ->capture_default_str();
  command
      .add_option("--set", arguments.open.overrides, "Board number: section.key=value (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--mxu", arguments.mxu,
                  "Matrix units by instance path: GLOB=fast|rtl|lockstep[:1/N][@A..B|@waves] "
                  "(repeatable; only in "
                  "steps A to B of the run), for example board.chip0.*.mxu*=lockstep:1/100")
      ->allow_extra_args(false)
      ->type_name("GLOB=MODE");
  command
      .add_option("--verilog", arguments.verilog,
                  "Semaphores and DMA queues by instance path: GLOB=model|rtl|lockstep "
                  "(repeatable), for example board.chip0.*.sem=lockstep or board.*.dma_*=rtl")
      ->allow_extra_args(false)
      ->type_name("GLOB=MODE");
  command
      .add_option("--threads", arguments.open.sim.threads, "Host threads (0: one per host core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.add_option("--simd", arguments.open.sim.simd, "Instruction set of the fast engines")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512", "avx512_bf16", "amx"}));
  command.add_flag("--no-data", arguments.open.sim.no_data, "Time only: no data work is done");
  command.add_flag("--check", arguments.open.sim.check,
                   "Check programs for unsynchronised accesses");
  command
      .add_option("--schedule-seed", arguments.open.sim.schedule_seed,
                  "Start commands later by random legal delays: step S of the run by those of "
                  "seed N + S (0: none)")
      ->check(kCounted)
      ->capture_default_str()
      ->type_name("N");
  command.add_flag("--profile", arguments.open.sim.profile,
                   "Count where the host's time goes and print the table at the end");
  command
      .add_option("--time-limit", arguments.open.time_limit,
                  "Seconds of host time that a launch may take without ending a step; 0: any time "
                  "(default: 60, or 0 with Verilog matrix units or --gdb)")
      ->check(seconds_between(0, kMostTimeLimit))
      ->type_name("SECONDS");
  command
      .add_option("--progress", arguments.open.progress_seconds,
                  "Seconds of host time after which a launch that ends no step is told of, on "
                  "standard error, and again after as long: its operation, iterations of its "
                  "loops; 0: never")
      ->check(seconds_between(0, kMostTimeLimit))
      ->capture_default_str()
      ->type_name("SECONDS");
  command
      .add_option("--hang-report", arguments.open.hang_report,
                  "Written when a launch hangs: who waits for whom, as JSON")
      ->type_name("FILE.json");
  add_record_options(command, arguments);
  add_debugger_options(command, arguments);
  command.add_option("--transport", arguments.open.transport, "sim, or null: a board without time")
      ->check(CLI::IsMember({"sim", "null"}))
      ->capture_default_str();
}

std::function<std::string(const std::string& text)> seconds_between(double least, double most) {
  return [least, most](const std::string& text) {
    double seconds = 0;
    const bool valid =
        CLI::detail::lexical_cast(text, seconds) && seconds >= least && seconds <= most;
    return valid ? std::string()
                 : fmt::format("{} is no number of seconds from {} to {}", text, least, most);
  };
}

std::string folder_named(const std::string& text) {
  return text.empty() ? "an empty text is no folder; . is this one" : "";
}

void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs) {
  try {
    spec::refuse_overwrite(output, inputs);
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

void keep_inputs(const OpenOptions& options, const std::vector<std::string>& outputs,
                 std::vector<std::string> inputs) {
  inputs.push_back(options.preset);
  inputs.push_back(options.firmware_file);
  const SimOptions& sim = options.sim;
  for (const std::string& output : {sim.trace_path, sim.mmio_trace_path, sim.firmware_log,
                                    sim.waves_path, sim.timeline_path, sim.mxu_waves_path}) {
    refuse_overwrite(output, inputs);
  }
  std::vector<std::string> late = outputs;
  late.push_back(options.hang_report);
  for (const std::string& output : late) {
    if (!output.empty() && output != "-") {
      refuse_overwrite(output, inputs);
      need_writable(output);
    }
  }
}

}  // namespace tpu::driver
