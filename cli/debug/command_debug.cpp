// tpuboard debug: runs a program once with everything that its ops make kept, and looks at it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "cli/commands.hpp"
#include "cli/debug/debug_session.hpp"
#include "cli/debug/line_reader.hpp"
#include "cli/options.hpp"
#include "cli/program_inputs.hpp"
#include "terminal/counted.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct DebugArguments {
  BoardArguments board;
  std::string program;
  std::string executable;
  std::vector<std::string> inputs;
  std::string commands;
  double tolerance = 1e-4;
  bool compare = false;
};

void run_script(DebugSession& session, std::istream& in, const std::string& name) {
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (!session.command(line, fmt::format("{}:{}: ", name, ++number))) {
      break;
    }
  }
  if (session.wrong_commands() != 0) {
    throw std::runtime_error(fmt::format("{} of the session failed; see above",
                                         spec::counted(session.wrong_commands(), "command")));
  }
}

void run_typed(DebugSession& session) {
  LineReader reader([&](const std::string& line) { return session.completions(line); });
  for (;;) {
    const auto line = reader.read("(debug) ");
    if (!line || !session.command(*line)) {
      return;
    }
  }
}

void run_session(DebugSession& session, const DebugArguments& arguments) {
  if (arguments.compare) {
    session.command("compare");
  }
  if (!arguments.commands.empty()) {
    std::ifstream script(arguments.commands);
    if (!script) {
      throw Error(ErrorCode::kInvalidArgument, arguments.commands + ": cannot be read");
    }
    run_script(session, script, arguments.commands);
  } else if (!arguments.compare && isatty(STDIN_FILENO) != 0) {
    run_typed(session);
  } else if (!arguments.compare) {
    run_script(session, std::cin, "standard input");
  }
}

void debug(const DebugArguments& arguments) {
  const OpenOptions options = arguments.board.open;
  if (options.sim.no_data) {
    throw UsageError("the debugger shows computed values; remove --no-data");
  }
  if (options.sim.record || options.sim.xprof) {
    throw UsageError(
        fmt::format("{}: `tpuboard debug` does not write this file; use it with `tpuboard run`",
                    options.sim.record ? "--record" : "--xprof"));
  }
  const std::map<size_t, std::string> files = input_files(arguments.inputs);
  std::vector<std::string> inputs = {arguments.program, arguments.executable, arguments.commands};
  for (const auto& [number, file] : files) {
    inputs.push_back(file);
  }
  keep_inputs(arguments.board, {}, inputs);
  RecordedRun run(options, arguments.program, arguments.executable, files);
  DebugSession session(run, arguments.tolerance, std::cout);
  std::cout << fmt::format("{} and {} on {}; `help` lists the commands of the debugger\n",
                           spec::counted(run.kept().values.size(), "op"),
                           spec::counted(run.commands().size(), "command"),
                           spec::counted(run.devices().size(), "core"));
  if (!run.failure().empty()) {
    spec::print(std::cout, "the launch failed: {}\n", run.failure());
  }
  std::cout.flush();
  run_session(session, arguments);
  run.close();
  if (session.found_difference()) {
    throw std::runtime_error("the result of an op differs from the reference evaluation");
  }
}

}  // namespace

void add_debug_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "debug", "Run a program once and look at what its operations and commands did");
  auto arguments = std::make_shared<DebugArguments>();
  command->add_option("program", arguments->program, "StableHLO portable artifact, or HLO module")
      ->required()
      ->type_name("P.mlirbc");
  command
      ->add_option("--executable", arguments->executable,
                   "What tpuc --keep-values made of it, to be run instead of compiling it")
      ->type_name("OUT.tpuexe");
  command->add_option("--in", arguments->inputs, "Argument as a NumPy file: NUMBER=FILE.npy")
      ->allow_extra_args(false)
      ->type_name("K=FILE.npy");
  command
      ->add_option("--commands", arguments->commands,
                   "Commands of the session, a line each (default: standard input)")
      ->type_name("FILE");
  command->add_flag("--compare", arguments->compare,
                    "Compare every operation with the reference evaluation, say which is the first "
                    "that differs, and fail when there is one");
  command
      ->add_option("--tolerance", arguments->tolerance,
                   "Difference of a sum that is accepted, relative to the magnitudes of its terms")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  add_board_options(*command, arguments->board);
  command->callback([arguments] { debug(*arguments); });
}

}  // namespace tpu::driver
