// Options of the board.
#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <optional>

#include "cli/checked.hpp"
#include "file/whole_file.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

// "A..B" with A <= B.
std::optional<std::pair<uint64_t, uint64_t>> range_of(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    return std::nullopt;
  }
  const auto first = whole_number(text.substr(0, dots));
  const auto last = whole_number(text.substr(dots + 2));
  // The number of steps or tiles, last - first + 1, must fit too.
  if (!first || !last || *first > *last || *last == std::numeric_limits<uint64_t>::max()) {
    return std::nullopt;
  }
  return std::pair(*first, *last);
}

std::pair<uint64_t, uint64_t> need_range(const std::string& text, const char* option) {
  const auto range = range_of(text);
  if (!range) {
    throw UsageError(fmt::format("{} {}: expected A..B with A <= B", option, text));
  }
  return *range;
}

bool valid_mxu_mode(std::string_view mode) {
  const size_t at = mode.find('@');
  if (at != std::string_view::npos) {
    if (!range_of(mode.substr(at + 1))) {
      return false;
    }
    mode = mode.substr(0, at);
  }
  constexpr std::string_view kSampled = "lockstep:1/";
  if (mode.starts_with(kSampled)) {
    return whole_number(mode.substr(kSampled.size())).value_or(0) > 0;
  }
  return mode == "fast" || mode == "scalar" || mode == "rtl" || mode == "lockstep";
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
      .add_option(
          "--mxu", arguments.mxu,
          "Matrix units by instance path: GLOB=fast|rtl|lockstep[:1/N][@A..B] (repeatable; only in "
          "steps A to B of the run), for example board.chip0.*.mxu*=lockstep:1/100")
      ->allow_extra_args(false)
      ->type_name("GLOB=MODE");
  command
      .add_option("--threads", arguments.open.sim.threads, "Host threads (0: one per host core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command.add_option("--simd", arguments.open.sim.simd, "Instruction set of the fast engines")
      ->check(CLI::IsMember({"scalar", "avx2", "avx512", "amx"}));
  command.add_flag("--no-data", arguments.open.sim.no_data, "Time only: no data work is done");
  command.add_flag("--check", arguments.open.sim.check,
                   "Check programs for unsynchronised accesses");
  command.add_flag("--profile", arguments.open.sim.profile,
                   "Count where the host's time goes and print the table at the end");
  command
      .add_option("--time-limit", arguments.open.time_limit,
                  "Seconds of host time that a launch may take without ending a step; 0: any time "
                  "(default: 60, or 0 with Verilog matrix units)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            double seconds = 0;
            const bool valid = CLI::detail::lexical_cast(text, seconds) && seconds >= 0;
            return valid ? "" : text + " is no number of seconds, 0 or more";
          },
          ""))
      ->type_name("SECONDS");
  command
      .add_option("--trace", arguments.open.sim.trace_path, "One text line for each engine command")
      ->type_name("FILE.txt");
  CLI::Option* waves =
      command.add_option("--waves", arguments.open.sim.waves_path, "Board-level signals");
  waves->type_name("FILE.fst");
  command
      .add_option("--waves-steps", arguments.waves_steps,
                  "Steps of the run in --waves, first and last")
      ->needs(waves)
      ->capture_default_str()
      ->type_name("A..B");
  CLI::Option* mxu_waves = command.add_option("--mxu-waves", arguments.open.sim.mxu_waves_path,
                                              "Signals of the first Verilog matrix unit");
  mxu_waves->type_name("FILE.fst");
  command
      .add_option("--mxu-waves-tiles", arguments.mxu_waves_tiles,
                  "Tiles in --mxu-waves, first and last")
      ->needs(mxu_waves)
      ->capture_default_str()
      ->type_name("A..B");
  command.add_option("--transport", arguments.open.transport, "sim, or null: a board without time")
      ->check(CLI::IsMember({"sim", "null"}))
      ->capture_default_str();
}

void refuse_overwrite(const std::string& output, const std::vector<std::string>& inputs) {
  try {
    spec::refuse_overwrite(output, inputs);
  } catch (const spec::FileError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

void keep_inputs(const OpenOptions& options, const std::string& json,
                 std::vector<std::string> inputs) {
  inputs.push_back(options.preset);
  const SimOptions& sim = options.sim;
  for (const std::string& output : {sim.trace_path, sim.waves_path, sim.mxu_waves_path, json}) {
    refuse_overwrite(output, inputs);
  }
}

std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    throw UsageError(fmt::format("{} {}: expected KEY=VALUE", option, text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

OpenOptions open_options(const BoardArguments& arguments) {
  OpenOptions options = arguments.open;
  for (const std::string& text : options.overrides) {
    split_assignment(text, "--set");
  }
  for (const std::string& text : arguments.mxu) {
    const auto [glob, mode] = split_assignment(text, "--mxu");
    if (!valid_mxu_mode(mode)) {
      throw UsageError(
          fmt::format("--mxu {}: '{}' is no mode; use fast, scalar, rtl, lockstep or lockstep:1/N, "
                      "and @A..B for steps",
                      text, mode));
    }
    options.sim.mxu.emplace_back(glob, mode);
  }
  const auto steps = need_range(arguments.waves_steps, "--waves-steps");
  options.sim.waves_first_step = steps.first;
  options.sim.waves_steps = steps.second - steps.first + 1;
  const auto tiles = need_range(arguments.mxu_waves_tiles, "--mxu-waves-tiles");
  options.sim.mxu_waves_first_tile = tiles.first;
  options.sim.mxu_waves_tiles = tiles.second - tiles.first + 1;
  return options;
}

}  // namespace tpu::driver
