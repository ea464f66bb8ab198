// tpuboard devices: what is on the board.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "format/json_output.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/worker.hpp"

namespace tpu::driver {
namespace {

struct DevicesArguments {
  BoardArguments board;
  std::string json;
};

void print_text(const Board& board, const std::string& transport) {
  spec::print("board {}, core clock {:.0f} MHz, transport {}\n", board.name(),
              board.clock_hz() / 1e6, transport);
  for (const DeviceInfo& device : board.devices()) {
    spec::print("TPU:{}  chip {}  core {}  coordinates ({},{})  HBM {} GiB\n", device.id,
                device.chip, device.core, device.x, device.y, device.hbm_bytes >> 30);
  }
}

nlohmann::ordered_json as_json(const Board& board, const std::string& transport) {
  nlohmann::ordered_json json;
  json["board"] = board.name();
  json["board_hash"] = fmt::format("{:016x}", board.hash());
  json["clock_hz"] = board.clock_hz();
  json["transport"] = transport;
  json["devices"] = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : board.devices()) {
    json["devices"].push_back({{"id", device.id},
                               {"chip", device.chip},
                               {"core", device.core},
                               {"coordinates", {device.x, device.y}},
                               {"hbm_bytes", device.hbm_bytes},
                               {"hbm_used", device.hbm_used},
                               {"hbm_largest_free", device.hbm_largest_free}});
  }
  return json;
}

void devices(const DevicesArguments& arguments) {
  serve_first_rank(arguments.board.open);
  const JsonOutput json(arguments.json);
  const Board board = Board::open(arguments.board.open);
  if (json.wanted()) {
    json.write(as_json(board, arguments.board.open.transport));
  } else {
    print_text(board, arguments.board.open.transport);
  }
  board.close();
}

}  // namespace

void add_devices_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the cores of the board");
  auto arguments = std::make_shared<DevicesArguments>();
  add_board_options(*command, arguments->board);
  add_list_json_option(*command, arguments->json, [arguments] { devices(*arguments); });
}

}  // namespace tpu::driver
