// tpuboard mxu-replay: a tile that lockstep found to differ, again, through the Verilog, the fast
// engines and the reference.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "board/board_loader.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "replay/mxu_replay.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

struct ReplayArguments {
  std::string tile;
  std::string waves;
  std::string board = "v3_8";
};

void replay(const ReplayArguments& arguments) {
  refuse_overwrite(arguments.waves, {arguments.tile, arguments.board});
  const spec::BoardParams params = spec::load_board(arguments.board);
  const auto clock_hz = static_cast<uint64_t>(params.core.clock_mhz) * 1'000'000;
  const model::MxuReplayResult result =
      model::mxu_replay(arguments.tile, arguments.waves, clock_hz, std::cout);
  std::cout.flush();
  if (result.verilog > 0 || result.engines > 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: the engines do not agree on this tile", arguments.tile));
  }
  if (!result.agree()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: the engines agree now; the recorded results do not agree with "
                            "them",
                            arguments.tile));
  }
  spec::print("all agree\n");
}

}  // namespace

void add_replay_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "mxu-replay", "Run a tile of a lockstep mismatch again; exit code 0 when all agree");
  auto arguments = std::make_shared<ReplayArguments>();
  command->add_option("tile", arguments->tile, "File that the mismatch report names")
      ->required()
      ->type_name("FILE.tile");
  command->add_option("--waves", arguments->waves, "Signals of the Verilog matrix unit")
      ->type_name("FILE.fst");
  command->add_option("--board", arguments->board, "Board preset or file, for the clock")
      ->capture_default_str();
  command->allow_extras();  // a second tile gets a text of its own
  command->callback([command, arguments] {
    const std::vector<std::string> extras = command->remaining();
    if (std::ranges::any_of(extras,
                            [](const std::string& text) { return text.starts_with('-'); })) {
      throw CLI::ExtrasError({extras.rbegin(), extras.rend()});  // it names the last one first
    }
    if (!extras.empty()) {
      throw CLI::ValidationError("mxu-replay",
                                 fmt::format("takes one FILE.tile, found also {}", extras.front()));
    }
    replay(*arguments);
  });
}

}  // namespace tpu::driver
