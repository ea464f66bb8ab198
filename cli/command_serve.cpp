// tpuboard serve: the board as a worker, for drivers in other processes and on other hosts.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/usage_error.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver {
namespace {

constexpr double kLingerSeconds = 60;
constexpr double kMostSeconds = 1e6;
constexpr int kMostBoards = 64;

struct ServeArguments {
  BoardArguments board;
  ServeOptions serve;
  double linger = kLingerSeconds;
};

void serve(ServeArguments& arguments) {
  if (!arguments.board.open.connect.empty()) {
    throw UsageError("--connect: a worker has its boards itself");
  }
  arguments.serve.board = arguments.board.open;
  arguments.serve.linger = std::chrono::milliseconds(static_cast<int64_t>(arguments.linger * 1000));
  serve_boards(arguments.serve);
}

}  // namespace

void add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "serve", "Have boards for programs in other processes and on other hosts (--connect)");
  auto arguments = std::make_shared<ServeArguments>();
  ServeOptions& serve_options = arguments->serve;
  command->add_option("--listen", serve_options.listen, "unix:PATH or tcp:HOST:PORT (0: any port)")
      ->required()
      ->type_name("ADDRESS");
  command->add_option("--boards", serve_options.boards, "Boards in use at a time")
      ->check(CLI::Range(1, kMostBoards))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--linger", arguments->linger,
                   "A program whose connection broke can come back for so long")
      ->check(seconds_between(0, kMostSeconds))
      ->capture_default_str()
      ->type_name("SECONDS");
  command
      ->add_option("--token", serve_options.token,
                   "File with the token that programs must have; made if it is not there")
      ->type_name("FILE");
  CLI::Option* certificate =
      command->add_option("--tls-cert", serve_options.tls_cert, "Certificate: turns TLS on")
          ->type_name("FILE.pem");
  CLI::Option* key = command->add_option("--tls-key", serve_options.tls_key, "Its key")
                         ->needs(certificate)
                         ->type_name("FILE.pem");
  certificate->needs(key);
  add_board_options(*command, arguments->board);
  command->callback([arguments] { serve(*arguments); });
}

}  // namespace tpu::driver
