// tpuboard devices: what is on the board.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/options.hpp"

namespace tpu::driver {

void add_devices_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the cores of the board");
  auto arguments = std::make_shared<BoardArguments>();
  add_board_options(*command, *arguments);
  command->callback([arguments] {
    const Board board = Board::open(open_options(*arguments));
    fmt::print("board {}, core clock {:.0f} MHz, transport {}\n", board.name(),
               board.clock_hz() / 1e6, arguments->transport);
    for (const DeviceInfo& device : board.devices()) {
      fmt::print("TPU:{}  chip {}  core {}  coordinates ({},{})  HBM {} GiB\n", device.id,
                 device.chip, device.core, device.x, device.y, device.hbm_bytes >> 30);
    }
    board.close();
  });
}

}  // namespace tpu::driver
