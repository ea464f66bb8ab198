// Options that change between launches.
#include "src/facets/sim_calls.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "options/option_check.hpp"
#include "src/texts/firmware.hpp"

namespace tpu::driver {
namespace {

constexpr double kTimeLimitSeconds = 60;  // OpenOptions::time_limit, of so many cores; with more
constexpr double kUsualCores = 32;        // of them a step takes the host longer

}  // namespace

void SimCalls::open(const SimOptions& sim) {
  sim_ = sim;
  records_.set_options(sim);
}

void SimCalls::open_limit(std::optional<double> seconds, size_t devices) {
  devices_ = devices;
  time_limit_ = seconds;
  limit_.set_clock(clock_of(sim_, time_limit_));
}

// A launch of Verilog may take hours, and one that a debugger stops any time.
LaunchClock SimCalls::clock_of(const SimOptions& sim, std::optional<double> time_limit) const {
  const bool verilog = std::any_of(sim.mxu.begin(), sim.mxu.end(), [](const auto& unit) {
    return unit.second.starts_with("rtl") || unit.second.starts_with("lockstep");
  });
  const bool any_time = verilog || !sim.verilog.empty() || !sim.gdb.empty();
  const double usual =
      kTimeLimitSeconds * std::max(1.0, static_cast<double>(devices_) / kUsualCores);
  const double limit = time_limit.value_or(any_time ? 0 : usual);
  if (!(limit >= 0)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("invalid time limit {}: expected seconds from 0 on; 0: no limit", limit));
  }
  return {limit, devices_};
}

SimOptions SimCalls::sim() {
  const Door::Entry entry(door_, EntryKind::kLook);
  return sim_;
}

void SimCalls::change_sim(const SimOptions& sim) {
  const Door::Entry entry(door_);
  health_.check_usable();
  check_changed_options(sim);
  settle_();
  SimOptions resolved = sim;
  resolved.waves_trigger = trigger_with_address(harts_.names(), harts_.build(), sim.waves_trigger);
  const std::string error = transport_->change_sim(resolved);
  limit_.set_clock(clock_of(sim, time_limit_));
  records_.set_options(sim);
  sim_ = sim;
  if (!error.empty()) {
    throw Error(ErrorCode::kFailedPrecondition, error);
  }
}

void SimCalls::change_time_limit(std::optional<double> seconds) {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle_();
  limit_.set_clock(clock_of(sim_, seconds));
  time_limit_ = seconds;
}

}  // namespace tpu::driver
