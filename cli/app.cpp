// Parsing of the command line and exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "check/near_names.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/options.hpp"
#include "cli/stop_signals.hpp"
#include "sim/option_names.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int failed(const std::string& text) {
  spec::print(stderr, "tpuboard: {}\n", spec::name_options(text, spec::OptionDoor::kCommandLine));
  return kFailed;
}

// Text that did not reach standard output (a full disk) is a failure of the command.
int end_of_output(int code) {
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::ferror(stdout) == 0) {
    return code;
  }
  std::clearerr(stdout);
  spec::print(stderr, "tpuboard: standard output: cannot be written{}{}\n", flushed ? "" : ": ",
              flushed ? "" : std::strerror(error));
  return code == 0 ? kFailed : code;
}

// CLI11 says only that a subcommand is required.
void need_known_command(CLI::App& app, int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "-";
  std::vector<std::string> shown;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == word) {
      return;
    }
    if (!command->get_group().empty()) {  // others are for the command itself
      shown.push_back(command->get_name());
    }
  }
  if (!word.starts_with('-')) {
    const std::string meant = spec::closest_name(word, shown);
    throw UsageError(fmt::format("unknown command '{}'{}", word,
                                 meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
  }
}

// The exit code; errors become one text for people.
int run(CLI::App& app, int argc, const char* const* argv) {
  try {
    need_known_command(app, argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with code 0 in this library.
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  } catch (const UsageError& error) {
    failed(fmt::format("{}\nRun with --help for more information.", error.what()));
    return kWrongUsage;
  } catch (const StoppedBySignal& stopped) {
    return stopped.exit_code();
  } catch (const EndedWithCode& ended) {
    return ended.exit_code();
  } catch (const std::filesystem::filesystem_error& error) {
    return failed(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::bad_alloc&) {
    return failed("the host's memory does not suffice; use smaller arrays, or a host with more");
  } catch (const std::length_error&) {
    return failed("an array is larger than this host can address; use smaller ones");
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

}  // namespace

int tpuboard_main(int argc, const char* const* argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of a write, as a full disk is
  CLI::App app("A virtual TPU v3-8 board: list it, run programs, train.", "tpuboard");
  const std::string version = fmt::format("tpuboard {}", kVersion);
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  add_demo_command(app);
  add_examples_command(app);
  add_doctor_command(app);
  add_devices_command(app);
  add_run_command(app);
  add_debug_command(app);
  add_train_command(app);
  add_sweep_command(app);
  add_convert_command(app);
  add_monitor_command(app);
  add_tpu_worker_command(app);
  add_pod_command(app);
  add_objdump_command(app);
  add_serve_command(app);
  add_serve_maker_command(app);
  add_bench_command(app);
  add_replay_command(app);
  add_report_command(app);
  for (CLI::App* command : app.get_subcommands({})) {
    command->set_version_flag("--version", version);
  }
  return end_of_output(run(app, argc, argv));
}

}  // namespace tpu::driver
