// What the board is, and options of the simulation that change while it is open.
#include <fmt/format.h>

#include <algorithm>

#include "options/option_check.hpp"
#include "src/board/board_impl.hpp"
#include "src/residency/program.hpp"
#include "src/texts/firmware.hpp"

namespace tpu::driver {
namespace {

constexpr double kTimeLimitSeconds = 60;  // OpenOptions::time_limit

}  // namespace

// A launch of Verilog may take hours, and one that a debugger stops any time.
LaunchClock BoardImpl::clock_of(const SimOptions& sim, std::optional<double> time_limit) const {
  const bool verilog = std::any_of(sim.mxu.begin(), sim.mxu.end(), [](const auto& unit) {
    return unit.second.starts_with("rtl") || unit.second.starts_with("lockstep");
  });
  const bool any_time = verilog || !sim.verilog.empty() || !sim.gdb.empty();
  const double limit = time_limit.value_or(any_time ? 0 : kTimeLimitSeconds);
  if (!(limit >= 0)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("invalid time limit {}: expected seconds from 0 on; 0: no limit", limit));
  }
  return {limit, static_cast<size_t>(spec::core_count(params_))};
}

void BoardImpl::settle(uint64_t last) {
  waits_.run_until_idle(std::nullopt, last);
  health_.check_unbroken();
}

void BoardImpl::add_counters(BoardCounters& counters) const {
  counters.check_text = records_.check_text();
  counters.late_calls = turn_.late_calls();
  counters.repeated_doorbells = recovery_.repeated_doorbells();
  counters.recoveries = recovery_.recoveries();
}

void BoardImpl::prepare_input(uint64_t bytes) {
  pump_.prepare_input(spec::host_input_cycles(params_, bytes));
}

SimOptions BoardImpl::sim() {
  const Door::Entry entry(door_, EntryKind::kLook);
  return sim_;
}

void BoardImpl::change_sim(const SimOptions& sim) {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle();
  check_changed_options(sim);
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

void BoardImpl::change_time_limit(std::optional<double> seconds) {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle();
  limit_.set_clock(clock_of(sim_, seconds));
  time_limit_ = seconds;
}

std::vector<DeviceInfo> BoardImpl::device_infos() {
  std::vector<DeviceInfo> infos;
  for (const Device& device : devices_) {
    DeviceInfo info;
    info.id = device.id;
    info.chip = device.chip;
    info.core = device.core;
    info.x = static_cast<int>(device.chip % params_.board.torus_x);
    info.y = static_cast<int>(device.chip / params_.board.torus_x);
    info.hbm_bytes = static_cast<uint64_t>(params_.hbm.gib_per_core) << 30;
    const MemoryUse use = device.memory->use();
    info.hbm_used = use.used;
    info.hbm_peak = use.peak;
    info.hbm_largest_free = use.largest_free;
    info.hbm_limit = device.memory->capacity();
    info.hbm_ranges = use.ranges;
    info.hbm_ranges_ever = use.ranges_ever;
    info.hbm_largest_ever = use.largest_ever;
    infos.push_back(info);
  }
  return infos;
}

void BoardImpl::save_snapshot(const std::string& path, const SnapshotItems& items) {
  const Door::Entry entry(door_);
  health_.check_usable();
  snapshot_.check_feeds();
  settle();
  snapshot_.save(path, items);
}

SnapshotItems BoardImpl::take_snapshot_items() {
  const Door::Entry entry(door_);
  health_.check_usable();
  return snapshot_.take_items();
}

}  // namespace tpu::driver
