// Windows of simulated time.
#include "figures/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tpu/counters.hpp"
#include "tpu/error.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {

Window::Window(const Board& board, const std::vector<int>& devices)
    : board_(board),
      devices_(devices.begin(), devices.end()),
      run_cycles_(devices.size()),
      hart_instructions_(devices.size()),
      grown_(devices.size()) {}

void Window::open() {
  last_ = board_.counters();
  start_ = board_.now();
  harts_at_start_ = board_.hart_instructions();
}

void Window::close() {
  cycles_ += board_.now() - start_;
  const std::vector<uint64_t> harts = board_.hart_instructions();
  const BoardCounters end = board_.counters();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const size_t device = devices_[i];
    const CoreCounters& from = last_.cores[device];
    const CoreCounters& to = end.cores[device];
    run_cycles_[i] += to.run_cycles - from.run_cycles;
    flops_ += to.mxu_flops - from.mxu_flops;
    commands_ += to.commands - from.commands;
    grown_[i].resize(to.all.size());
    for (size_t counter = 0; counter < to.all.size(); ++counter) {
      grown_[i][counter] += to.all[counter] - from.all.at(counter);
    }
    if (device < harts.size()) {
      hart_instructions_[i] += harts[device] - harts_at_start_[device];
    }
  }
  last_ = end;
}

std::vector<uint64_t> Window::grown(size_t counter) const {
  std::vector<uint64_t> cores;
  for (const std::vector<uint64_t>& each : grown_) {
    cores.push_back(counter < each.size() ? each[counter] : 0);
  }
  return cores;
}

std::vector<NamedCounter> Window::counters() const {
  std::vector<NamedCounter> counters;
  const auto names = counter_names();
  const size_t count = grown_.empty() ? 0 : grown_.front().size();
  for (size_t counter = 0; counter < std::min(names.size(), count); ++counter) {
    counters.push_back({names[counter], grown(counter)});
  }
  return counters;
}

std::vector<uint64_t> Window::hbm_read_bytes() const { return grown(spec::perf::kHbmReadBytes); }
std::vector<uint64_t> Window::hbm_written_bytes() const {
  return grown(spec::perf::kHbmWriteBytes);
}
std::vector<uint64_t> Window::link_bytes() const { return grown(spec::perf::kIciSentBytes); }

double Window::seconds() const { return static_cast<double>(cycles_) / board_.clock_hz(); }

double Window::mxu_utilization() const {
  const double peak = static_cast<double>(board_.peak_flops_per_cycle()) *
                      static_cast<double>(cycles_) * static_cast<double>(devices_.size());
  return peak > 0 ? static_cast<double>(flops_) / peak : 0.0;
}

double Window::idle() const {
  const double all = static_cast<double>(cycles_) * static_cast<double>(devices_.size());
  const auto run =
      static_cast<double>(std::accumulate(run_cycles_.begin(), run_cycles_.end(), uint64_t{0}));
  return all > 0 ? std::max(0.0, 1.0 - run / all) : 0.0;
}

nlohmann::ordered_json lockstep_figures(const BoardCounters& counters) {
  return {{"tiles", counters.lockstep_tiles},
          {"semaphore_values", counters.lockstep_semaphores},
          {"transfers", counters.lockstep_transfers},
          {"mismatches", counters.lockstep_mismatches}};
}

void require_clean(const BoardCounters& counters) {
  if (counters.lockstep_mismatches > 0) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("{} differences from the Verilog or failed assertions in it (compared were {} "
                    "tiles of matrix units, {} values of semaphores, {} transfers)\n{}",
                    counters.lockstep_mismatches, counters.lockstep_tiles,
                    counters.lockstep_semaphores, counters.lockstep_transfers,
                    counters.lockstep_text));
  }
  if (counters.check_findings > 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} unsynchronized accesses in the program\n{}",
                            counters.check_findings, counters.check_text));
  }
}

}  // namespace tpu::driver
