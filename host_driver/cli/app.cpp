// Parsing of the command line and exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "tpu/error.hpp"
#include "tpu/version.hpp"

namespace tpu::driver {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

}  // namespace

int tpuboard_main(int argc, const char* const* argv) {
  CLI::App app("A virtual TPU v3-8 board: list it, run programs, train.", "tpuboard");
  const std::string version = fmt::format("tpuboard {}", kVersion);
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  add_devices_command(app);
  add_run_command(app);
  add_train_command(app);
  add_objdump_command(app);
  add_bench_command(app);
  add_replay_command(app);
  for (CLI::App* command : app.get_subcommands({})) {
    command->set_version_flag("--version", version);
  }
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with code 0 in this library.
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  } catch (const UsageError& error) {
    fmt::print(stderr, "tpuboard: {}\nRun with --help for more information.\n", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tpuboard: {}\n", error.what());
    return kFailed;
  }
}

}  // namespace tpu::driver
