// tpuboard serve: the board as a worker, for drivers in other processes and on other hosts.
#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/usage_error.hpp"
#include "tpu/vfio_user.hpp"
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
  VfioUserOptions vfio;
  std::string pci_id = "1ae0:0027";
};

// Two numbers of four hexadecimal digits each.
void read_pci_id(const std::string& text, VfioUserOptions& options) {
  constexpr size_t kDigits = 4;
  constexpr int kHexadecimal = 16;
  const auto read = [&](size_t at, uint16_t& number) {
    const char* const first = text.data() + at;
    const auto [end, error] = std::from_chars(first, first + kDigits, number, kHexadecimal);
    return error == std::errc() && end == first + kDigits;
  };
  if (text.size() != 2 * kDigits + 1 || text[kDigits] != ':' || !read(0, options.vendor) ||
      !read(kDigits + 1, options.device)) {
    throw UsageError("--pci-id: invalid value '" + text +
                     "': expected VENDOR:DEVICE of four hexadecimal digits each, as 1ae0:0027");
  }
}

void serve(ServeArguments& arguments) {
  if (!arguments.board.open.connect.empty()) {
    throw UsageError("--connect: a worker has its boards itself");
  }
  if (arguments.board.open.board_processes != 1) {
    throw UsageError("--processes: for the program that connects; give it the list of workers");
  }
  if (!arguments.vfio.folder.empty()) {
    read_pci_id(arguments.pci_id, arguments.vfio);
    arguments.vfio.board = arguments.board.open;
    serve_vfio_user(arguments.vfio);
    return;
  }
  if (arguments.serve.listen.empty()) {
    throw UsageError("serve: give --listen ADDRESS, or --vfio-user FOLDER");
  }
  arguments.serve.board = arguments.board.open;
  arguments.serve.linger = std::chrono::milliseconds(static_cast<int64_t>(arguments.linger * 1000));
  serve_boards(arguments.serve);
}

}  // namespace

// Not for people: processes of a pod are started by it.
void add_serve_maker_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("serve-maker", "Have boards for the program that starts it");
  command->group("");
  command->callback([] {
    if (const int code = serve_boards_of_maker(); code != 0) {
      throw CLI::RuntimeError(code);
    }
  });
}

void add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "serve", "Have boards for programs in other processes and on other hosts (--connect)");
  auto arguments = std::make_shared<ServeArguments>();
  ServeOptions& serve_options = arguments->serve;
  CLI::Option* listen =
      command
          ->add_option("--listen", serve_options.listen, "unix:PATH or tcp:HOST:PORT (0: any port)")
          ->type_name("ADDRESS");
  CLI::Option* folder =
      command
          ->add_option("--vfio-user", arguments->vfio.folder,
                       "Chips as PCI functions for guests of QEMU: sockets in this folder")
          ->check(folder_named)
          ->excludes(listen)
          ->type_name("FOLDER");
  command->add_option("--pci-id", arguments->pci_id, "Vendor and device id of these PCI functions")
      ->needs(folder)
      ->capture_default_str()
      ->type_name("VENDOR:DEVICE");
  command->add_option("--boards", serve_options.boards, "Boards in use at a time")
      ->check(CLI::Range(1, kMostBoards))
      ->excludes(folder)
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--linger", arguments->linger,
                   "A program whose connection broke can come back for so long")
      ->check(seconds_between(0, kMostSeconds))
      ->excludes(folder)
      ->capture_default_str()
      ->type_name("SECONDS");
  command
      ->add_option("--token", serve_options.token,
                   "File with the token that programs must have; made if it is not there")
      ->excludes(folder)
      ->type_name("FILE");
  CLI::Option* certificate =
      command->add_option("--tls-cert", serve_options.tls_cert, "Certificate: turns TLS on")
          ->excludes(folder)
          ->type_name("FILE.pem");
  CLI::Option* key = command->add_option("--tls-key", serve_options.tls_key, "Its key")
                         ->needs(certificate)
                         ->type_name("FILE.pem");
  certificate->needs(key);
  add_board_options(*command, arguments->board);
  command->callback([arguments] { serve(*arguments); });
}

}  // namespace tpu::driver
