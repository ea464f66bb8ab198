// Options of the simulation that change while the board is open, and what one of them counts.
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

SimOptions BoardImpl::sim() {
  const Entry entry(*this, EntryKind::kLook);
  return sim_;
}

void BoardImpl::change_sim(const SimOptions& sim) {
  const Entry entry(*this);
  health_.check_usable();
  run_until_idle();
  health_.check_unbroken();
  check_changed_options(sim);
  SimOptions resolved = sim;
  resolved.waves_trigger = trigger_with_address(harts_.names(), harts_.build(), sim.waves_trigger);
  const std::string error = transport_->change_sim(resolved);
  launch_clock_ = clock_of(sim, time_limit_);
  records_.set_options(sim);
  sim_ = sim;
  if (!error.empty()) {
    throw Error(ErrorCode::kFailedPrecondition, error);
  }
}

void BoardImpl::change_time_limit(std::optional<double> seconds) {
  const Entry entry(*this);
  health_.check_usable();
  run_until_idle();
  health_.check_unbroken();
  launch_clock_ = clock_of(sim_, seconds);
  time_limit_ = seconds;
}

std::vector<OpTime> BoardImpl::op_times() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return records_.op_times();
}

std::string BoardImpl::take_xspace() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->take_xspace();
}

void BoardImpl::log_commands(const std::optional<spec::MemoryLook>& look) {
  const Entry entry(*this);
  health_.check_usable();
  run_until_idle();
  health_.check_unbroken();
  transport_->log_commands(look);
}

spec::CommandLog BoardImpl::take_commands() {
  const Entry entry(*this);
  health_.check_usable();
  run_until_idle();
  health_.check_unbroken();
  return transport_->take_commands();
}

std::string BoardImpl::take_record() {
  const Entry entry(*this, EntryKind::kLook);
  health_.check_usable();
  return transport_->take_record();
}

}  // namespace tpu::driver
