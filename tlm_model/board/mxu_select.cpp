// Patterns of matrix units: parsing, matching, engines.
#include "board/mxu_select.hpp"

#include <fnmatch.h>

#include <charconv>
#include <stdexcept>

#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_rtl.hpp"

namespace tpu::model {
namespace {

uint32_t parse_step(std::string_view text, const std::string& pattern) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw std::runtime_error("--mxu " + pattern + ": steps are written @A or @A..B, with numbers");
  }
  return value;
}

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace

MxuSelect::MxuSelect(const BoardOptions& options) : options_(options) {
  for (const auto& [pattern, text] : options.mxu) {
    bool used = false;
    for (int64_t core = 0; core < options.params.board.chips * options.params.board.cores_per_chip;
         ++core) {
      const int64_t per_chip = options.params.board.cores_per_chip;
      for (int64_t unit = 0; unit < options.params.core.mxus; ++unit) {
        used = used || matches(pattern, "board.chip" + std::to_string(core / per_chip) + ".core" +
                                            std::to_string(core % per_chip) + ".mxu" +
                                            std::to_string(unit));
      }
    }
    if (!used) {
      throw std::runtime_error("--mxu " + pattern +
                               ": matches no matrix unit; paths look like board.chip0.core1.mxu0");
    }
    modes_.emplace_back(pattern, parse(pattern, text));
  }
}

MxuSelect::Mode MxuSelect::parse(const std::string& pattern, const std::string& text) {
  Mode mode;
  const size_t at = text.find('@');
  mode.kind = text.substr(0, at);
  if (const auto error = mxu_kind_error(mode.kind)) {
    throw std::runtime_error("--mxu " + pattern + "=" + text + ": " + *error);
  }
  if (at != std::string::npos) {
    std::string_view steps = std::string_view(text).substr(at + 1);
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

MxuUnit MxuSelect::make(const std::string& path) {
  Mode mode;
  for (const auto& [pattern, candidate] : modes_) {
    if (matches(pattern, path)) {
      mode = candidate;
    }
  }
  MxuUnit unit;
  unit.engine = engine(path, mode.kind);
  if (mode.first_step != 0 || mode.last_step != UINT32_MAX) {
    unit.outside = engine(path, "fast");
    unit.first_step = mode.first_step;
    unit.last_step = mode.last_step;
  }
  return unit;
}

std::unique_ptr<MxuEngine> MxuSelect::engine(const std::string& path, const std::string& kind) {
  MxuEngineOptions options;
  options.kind = kind;
  options.simd = options_.simd.empty() ? "auto" : options_.simd;
  options.shape = mxu_shape(options_.params);
  options.lockstep.dump_prefix = options_.lockstep_dump_prefix + "-" + path;
  options.lockstep.on_mismatch = [this, path](const MxuMismatch& mismatch) {
    const std::lock_guard lock(mutex_);
    text_ += path + ": " + mismatch.text + "\n";
  };
  std::unique_ptr<MxuEngine> made = make_mxu_engine(options);
  if (const auto* lockstep = dynamic_cast<const MxuLockstepEngine*>(made.get())) {
    lockstep_.push_back(lockstep);
  }
  set_waves(*made);
  return made;
}

// The first engine with Verilog in it writes the waves.
void MxuSelect::set_waves(MxuEngine& engine) {
  if (options_.mxu_waves_path.empty() || wave_error_) {
    return;
  }
  MxuWaveWindow window;
  window.path = options_.mxu_waves_path;
  window.clock_hz = static_cast<uint64_t>(options_.params.core.clock_mhz) * 1'000'000;
  window.first_tile = options_.mxu_waves_first_tile;
  window.tiles = options_.mxu_waves_tiles;
  if (auto* lockstep = dynamic_cast<MxuLockstepEngine*>(&engine)) {
    lockstep->set_wave_window(window);
    wave_error_ = [lockstep] { return lockstep->wave_error(); };
  } else if (auto* rtl = dynamic_cast<MxuRtlEngine*>(&engine)) {
    rtl->set_wave_window(window);
    wave_error_ = [rtl] { return rtl->wave_error(); };
  }
}

MxuLockstepCounts MxuSelect::counts() const {
  MxuLockstepCounts sum;
  for (const MxuLockstepEngine* engine : lockstep_) {
    const MxuLockstepCounts counts = engine->counts();
    sum.tiles_seen += counts.tiles_seen;
    sum.tiles += counts.tiles;
    sum.mismatches += counts.mismatches;
  }
  return sum;
}

std::string MxuSelect::mismatch_text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::string MxuSelect::wave_error() const { return wave_error_ ? wave_error_() : std::string(); }

}  // namespace tpu::model
