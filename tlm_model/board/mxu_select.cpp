// Patterns of matrix units: parsing, matching, engines.
#include "board/mxu_select.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "board/append_line.hpp"
#include "board/board_loader.hpp"
#include "board/unit_paths.hpp"
#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_rtl.hpp"
#include "terminal/counted.hpp"

namespace tpu::model {
namespace {

uint64_t parse_step(std::string_view text, const std::string& pattern) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw std::runtime_error("SimOptions::mxu " + pattern + ": invalid steps '" +
                             std::string(text) +
                             "': expected @A or @A..B, with step numbers A and B");
  }
  return value;
}

}  // namespace

MxuSelect::MxuSelect(const BoardOptions& options, PortWatch watch, const bool& waves_open)
    : options_(options), watch_(std::move(watch)), waves_open_(waves_open) {
  const std::vector<std::string> paths = mxu_paths(options.params);
  for (const auto& [pattern, text] : options.sim.mxu) {
    if (!names_any(pattern, paths)) {
      throw std::runtime_error(
          "SimOptions::mxu " + pattern + ": matches no matrix unit; this board has " +
          paths.front() + " to " + paths.back() + unmatched_hint(pattern, paths, options.params));
    }
    modes_.emplace_back(pattern, parse(pattern, text));
  }
  check_verilog_wanted();
}

// The Verilog computes nothing in a run without data, and waves need a unit that runs it.
void MxuSelect::check_verilog_wanted() const {
  std::string asked;
  for (const auto& [pattern, mode] : modes_) {
    if (mode.in_waves && options_.sim.waves_path.empty()) {
      throw std::runtime_error("SimOptions::mxu " + mode.text +
                               ": there are no waves; name their file by SimOptions::waves_path");
    }
  }
  for (const std::string& path : mxu_paths(options_.params)) {
    const Mode& mode = mode_of(path);
    asked = mode.verilog() ? mode.text : asked;
  }
  if (!asked.empty() && options_.sim.no_data) {
    throw std::runtime_error(
        "SimOptions::mxu " + asked +
        " with SimOptions::no_data: matrix units compute nothing then; leave one out");
  }
  if (!options_.sim.mxu_waves_path.empty() && asked.empty()) {
    throw std::runtime_error("SimOptions::mxu_waves_path " + options_.sim.mxu_waves_path +
                             ": no matrix unit runs the Verilog; choose units by SimOptions::mxu: "
                             "GLOB=rtl or GLOB=lockstep, for example board.chip0.*.mxu*=lockstep");
  }
}

MxuSelect::Mode MxuSelect::parse(const std::string& pattern, const std::string& text) {
  Mode mode;
  mode.text = pattern + "=" + text;
  const size_t at = text.find('@');
  mode.kind = text.substr(0, at);
  if (const auto error = mxu_kind_error(mode.kind)) {
    throw std::runtime_error("SimOptions::mxu " + pattern + "=" + text + ": " + *error);
  }
  if (at != std::string::npos) {
    std::string_view steps = std::string_view(text).substr(at + 1);
    if (steps == "waves") {
      mode.in_waves = true;
      return mode;
    }
    if (steps.starts_with("step ")) {
      steps.remove_prefix(5);
    }
    const size_t dots = steps.find("..");
    mode.first_step = parse_step(steps.substr(0, dots), pattern);
    mode.last_step = dots == std::string_view::npos ? mode.first_step
                                                    : parse_step(steps.substr(dots + 2), pattern);
  }
  return mode;
}

const MxuSelect::Mode& MxuSelect::mode_of(const std::string& path) const {
  const Mode* mode = &fast_;
  for (const auto& [pattern, candidate] : modes_) {
    if (names_unit(pattern, path)) {
      mode = &candidate;
    }
  }
  return *mode;
}

MxuUnit MxuSelect::make(const std::string& path) {
  const Mode& mode = mode_of(path);
  MxuUnit unit;
  unit.engine = engine(path, mode);
  if (mode.windowed()) {
    unit.outside = engine(path, fast_);
    unit.first_step = mode.first_step;
    unit.last_step = mode.last_step;
    unit.window = mode.in_waves ? &waves_open_ : nullptr;
  }
  return unit;
}

std::unique_ptr<MxuEngine> MxuSelect::engine(const std::string& path, const Mode& mode) {
  MxuEngineOptions options;
  options.kind = mode.kind;
  options.path = path;
  options.simd = options_.sim.simd.empty() ? "auto" : options_.sim.simd;
  options.shape = spec::mxu_shape(options_.params);
  options.lockstep.dump_prefix =
      (std::filesystem::path(options_.sim.tile_folder) / ("mxu-" + path)).string();
  const auto note = [this, path](const std::string& text) {
    const std::lock_guard lock(mutex_);
    reports_.add(path, text);
  };
  options.lockstep.on_mismatch = [note](const MxuMismatch& mismatch) { note(mismatch.text); };
  options.on_failure = note;
  std::unique_ptr<MxuEngine> made = make_mxu_engine(options);
  if (const auto* lockstep = dynamic_cast<const MxuLockstepEngine*>(made.get())) {
    lockstep_.push_back({lockstep, mode.text, mode.in_waves});
  } else if (mode.verilog()) {
    alone_.push_back(made.get());
  }
  set_waves(path, *made, mode.in_waves);
  watch_ports(path, *made);
  return made;
}

void MxuSelect::watch_ports(const std::string& path, MxuEngine& engine) {
  const auto observer = [this, path](const MxuPorts& ports) { watch_(path, ports); };
  if (auto* lockstep = dynamic_cast<MxuLockstepEngine*>(&engine)) {
    lockstep->set_port_observer(observer);
  } else if (auto* rtl = dynamic_cast<MxuRtlEngine*>(&engine)) {
    rtl->set_port_observer(observer);
  }
}

std::vector<VerilogUnit> MxuSelect::verilog_units() const {
  const spec::MxuShape shape = spec::mxu_shape(options_.params);
  std::vector<VerilogUnit> units;
  for (const std::string& path : mxu_paths(options_.params)) {
    if (mode_of(path).verilog()) {
      units.push_back({path, shape.rows, shape.cols});
    }
  }
  return units;
}

// The first engine with Verilog in it writes the waves.
void MxuSelect::set_waves(const std::string& path, MxuEngine& engine, bool in_waves) {
  if (options_.sim.mxu_waves_path.empty() || finish_waves_) {
    return;
  }
  MxuWaveWindow window;
  window.path = options_.sim.mxu_waves_path;
  window.clock_hz = static_cast<uint64_t>(options_.params.core.clock_mhz) * 1'000'000;
  window.first_tile = options_.sim.mxu_waves_first_tile;
  window.tiles = options_.sim.mxu_waves_tiles;
  if (auto* lockstep = dynamic_cast<MxuLockstepEngine*>(&engine)) {
    lockstep->set_wave_window(window);
    finish_waves_ = [lockstep] { return lockstep->finish_waves(); };
  } else if (auto* rtl = dynamic_cast<MxuRtlEngine*>(&engine)) {
    rtl->set_wave_window(window);
    finish_waves_ = [rtl] { return rtl->finish_waves(); };
  }
  wave_unit_ = path;
  wave_unit_in_waves_ = finish_waves_ && in_waves;
}

MxuLockstepCounts MxuSelect::counts() const {
  MxuLockstepCounts sum;
  for (const Lockstep& lockstep : lockstep_) {
    const MxuLockstepCounts counts = lockstep.engine->counts();
    sum.tiles_seen += counts.tiles_seen;
    sum.tiles += counts.tiles;
    sum.mismatches += counts.mismatches;
  }
  for (const MxuEngine* engine : alone_) {
    sum.mismatches += engine->mismatches();
  }
  return sum;
}

std::string MxuSelect::mismatch_text() const {
  const std::lock_guard lock(mutex_);
  return reports_.text();
}

std::string MxuSelect::finish(uint64_t steps, bool waves_missed) const {
  std::string text = finish_waves_ ? finish_waves_() : std::string();
  if (waves_missed && wave_unit_in_waves_) {
    text.clear();
  }
  if (!text.empty()) {
    text += "; the file is of " + wave_unit_ + ", the first unit that SimOptions::mxu chooses";
  }
  std::map<std::string, uint64_t> compared;  // by option
  for (const Lockstep& lockstep : lockstep_) {
    if (!waves_missed || !lockstep.in_waves) {
      compared[lockstep.text] += lockstep.engine->counts().tiles;
    }
  }
  for (const auto& [option, tiles] : compared) {
    if (tiles == 0 && steps != 0) {
      append_line(text, "SimOptions::mxu " + option +
                            ": nothing was compared: these units ran no matmul in its steps; the "
                            "board ran " +
                            spec::counted(steps, "step") + ", counted from 0");
    }
  }
  return text;
}

}  // namespace tpu::model
