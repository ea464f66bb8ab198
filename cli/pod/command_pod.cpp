// tpuboard pod: a program as several processes of this host that share one board.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "board/board_loader.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/own_files.hpp"
#include "cli/pod/pod_shape.hpp"
#include "cli/pod/rank_processes.hpp"
#include "cli/scratch_folder.hpp"
#include "cli/usage_error.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;

struct PodArguments {
  int64_t processes = 0;
  std::string board;
  std::string chips;
  std::vector<std::string> words;
};

std::string environment_text(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The board that the plugin will open in each process.
spec::BoardParams board_of(const PodArguments& arguments) {
  const std::string named = environment_text("TPUBOARD_BOARD");
  std::vector<std::string> overrides;
  std::istringstream from(environment_text("TPUBOARD_SET"));
  for (std::string part; std::getline(from, part, ';');) {
    if (!part.empty()) {
      overrides.push_back(part);
    }
  }
  return spec::load_board(!arguments.board.empty() ? arguments.board
                          : named.empty()          ? "v3_8"
                                                   : named,
                          overrides);
}

// One that is free now. The processes find out if another one takes it.
int free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = probe >= 0 &&
                     ::bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  ::close(probe);
  if (!bound) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("no port for JAX's coordinator: {}", std::strerror(error)));
  }
  return ntohs(address.sin_port);
}

// Where the processes meet; without it, the server of their board ends.
ScratchFolder meeting_folder() {
  const fs::path name = fs::temp_directory_path() / "tpuboard-pod-XXXXXX";
  return {name, [&](const char* why) {
            throw Error(ErrorCode::kUnavailable,
                        fmt::format("{}: no folder for the processes: {}", name.string(), why));
          }};
}

// Ends this process with the code of the first that failed.
void run_pod(const PodArguments& arguments) {
  if (arguments.words.empty()) {
    throw UsageError(
        "expected a program behind --, as in: tpuboard pod --processes 2 -- python3 "
        "train.py");
  }
  if (arguments.processes == 0 && arguments.chips.empty()) {
    throw UsageError("expected --processes or --chips-per-process");
  }
  const spec::BoardParams board = board_of(arguments);
  const PodShape shape =
      pod_shape(board, arguments.processes,
                arguments.chips.empty() ? std::nullopt : std::optional(chip_grid(arguments.chips)));
  set_plugin_library();
  ::setenv("PYTHONUNBUFFERED", "1", 0);  // lines come when they are printed
  const ScratchFolder folder = meeting_folder();
  RankProcesses processes;
  const PodRun run{arguments.board, folder.path(), free_port()};
  for (int64_t process = 0; process < shape.processes; ++process) {
    processes.start(arguments.words, variables_of(board, shape, run, process));
  }
  processes.wait();
  folder.remove();
  constexpr std::chrono::seconds kFarewell{3};
  processes.drain(kFarewell);
  if (processes.code() != 0) {
    throw EndedWithCode(processes.code());
  }
}

}  // namespace

void add_pod_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("pod", "Run a program as several processes that share one board");
  auto arguments = std::make_shared<PodArguments>();
  constexpr int kMost = 1024;
  command->add_option("--processes", arguments->processes, "How many; each has as many cores")
      ->check(CLI::Range(1, kMost))
      ->type_name("N");
  command
      ->add_option("--board", arguments->board,
                   "Board preset or file (default: $TPUBOARD_BOARD, else v3_8)")
      ->type_name("BOARD");
  command
      ->add_option("--chips-per-process", arguments->chips,
                   "Of the board's torus (default: the squarest rectangle)")
      ->type_name("X,Y");
  command->add_option("program", arguments->words, "The program and its arguments, behind --")
      ->type_name("COMMAND");
  command->callback([arguments] { run_pod(*arguments); });
}

}  // namespace tpu::driver
