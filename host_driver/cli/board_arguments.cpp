// Texts to options.
#include "cli/board_arguments.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "files/checked.hpp"

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

// "900cycles", or "2steps".
void set_waves_length(std::string_view text, SimOptions& sim) {
  if (text.empty()) {
    return;
  }
  std::string_view digits = text;
  const bool steps = digits.ends_with("steps");
  if (!steps && !digits.ends_with("cycles")) {
    digits = {};
  }
  digits.remove_suffix(digits.empty() ? 0 : std::string_view(steps ? "steps" : "cycles").size());
  const auto count = whole_number(digits);
  if (!count || *count == 0) {
    throw UsageError(fmt::format(
        "--waves-for {}: expected a number of cycles or steps, 5000cycles or 3steps", text));
  }
  (steps ? sim.waves_for_steps : sim.waves_for_cycles) = *count;
}

void need_fst(const std::string& path, const char* option) {
  if (path.ends_with(".vcd")) {
    throw UsageError(fmt::format(
        "{} {}: waves are written as FST, which GTKWave and Surfer open; name the file .fst "
        "(fst2vcd, which comes with GTKWave, makes a VCD of it)",
        option, path));
  }
}

// Steps of the timeline and of the profile.
void set_record_windows(const BoardArguments& arguments, SimOptions& sim) {
  sim.xprof = sim.xprof || !arguments.xprof.empty();
  if (!arguments.xprof_steps.empty()) {
    const auto steps = need_range(arguments.xprof_steps, "--xprof-steps");
    sim.xprof_first_step = steps.first;
    sim.xprof_steps = steps.second - steps.first + 1;
  }
  sim.record = sim.record || !arguments.record.empty();
  if (!arguments.timeline_steps.empty()) {
    const auto steps = need_range(arguments.timeline_steps, "--timeline-steps");
    sim.timeline_first_step = steps.first;
    sim.timeline_steps = steps.second - steps.first + 1;
  }
}

bool valid_mxu_mode(std::string_view mode) {
  const size_t at = mode.find('@');
  if (at != std::string_view::npos) {
    if (mode.substr(at + 1) != "waves" && !range_of(mode.substr(at + 1))) {
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
                      "and @A..B for steps or @waves",
                      text, mode));
    }
    options.sim.mxu.emplace_back(glob, mode);
  }
  for (const std::string& text : arguments.verilog) {
    const auto [glob, mode] = split_assignment(text, "--verilog");
    if (mode != "model" && mode != "rtl" && mode != "lockstep") {
      throw UsageError(
          fmt::format("--verilog {}: '{}' is no mode; use model, rtl or lockstep", text, mode));
    }
    options.sim.verilog.emplace_back(glob, mode);
  }
  need_fst(options.sim.waves_path, "--waves");
  need_fst(options.sim.mxu_waves_path, "--mxu-waves");
  const auto steps = need_range(arguments.waves_steps, "--waves-steps");
  options.sim.waves_first_step = steps.first;
  options.sim.waves_steps = steps.second - steps.first + 1;
  set_waves_length(arguments.waves_for, options.sim);
  set_record_windows(arguments, options.sim);
  const auto tiles = need_range(arguments.mxu_waves_tiles, "--mxu-waves-tiles");
  options.sim.mxu_waves_first_tile = tiles.first;
  options.sim.mxu_waves_tiles = tiles.second - tiles.first + 1;
  return options;
}

}  // namespace tpu::driver
