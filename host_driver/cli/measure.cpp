// Windows of board time.
#include "cli/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tpu/error.hpp"
#include "tpu/spec/perf_regs.hpp"

namespace tpu::driver {
namespace {

uint64_t grown(const CoreCounters& from, const CoreCounters& to, size_t counter) {
  return to.all.at(counter) - from.all.at(counter);
}

}  // namespace

Window::Window(const Board& board, size_t cores, size_t first)
    : board_(board),
      cores_(cores),
      first_(first),
      run_cycles_(cores),
      hart_instructions_(cores),
      hbm_read_bytes_(cores),
      hbm_written_bytes_(cores),
      link_bytes_(cores) {}

void Window::open() {
  last_ = board_.counters();
  start_ = board_.now();
  harts_at_start_ = board_.hart_instructions();
}

void Window::close() {
  cycles_ += board_.now() - start_;
  const std::vector<uint64_t> harts = board_.hart_instructions();
  const BoardCounters end = board_.counters();
  for (size_t i = 0; i < cores_; ++i) {
    const CoreCounters& from = last_.cores[first_ + i];
    const CoreCounters& to = end.cores[first_ + i];
    run_cycles_[i] += to.run_cycles - from.run_cycles;
    flops_ += to.mxu_flops - from.mxu_flops;
    commands_ += to.commands - from.commands;
    hbm_read_bytes_[i] += grown(from, to, spec::perf::kHbmReadBytes);
    hbm_written_bytes_[i] += grown(from, to, spec::perf::kHbmWriteBytes);
    link_bytes_[i] += grown(from, to, spec::perf::kIciSentBytes);
    if (first_ + i < harts.size()) {
      hart_instructions_[i] += harts[first_ + i] - harts_at_start_[first_ + i];
    }
  }
  last_ = end;
}

double Window::seconds() const { return static_cast<double>(cycles_) / board_.clock_hz(); }

double Window::mxu_utilization() const {
  const double peak = static_cast<double>(board_.peak_flops_per_cycle()) *
                      static_cast<double>(cycles_) * static_cast<double>(cores_);
  return peak > 0 ? static_cast<double>(flops_) / peak : 0.0;
}

double Window::idle() const {
  const double all = static_cast<double>(cycles_) * static_cast<double>(cores_);
  const auto run =
      static_cast<double>(std::accumulate(run_cycles_.begin(), run_cycles_.end(), uint64_t{0}));
  return all > 0 ? std::max(0.0, 1.0 - run / all) : 0.0;
}

void require_clean(const BoardCounters& counters) {
  if (counters.lockstep_mismatches > 0) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{} of {} lockstep tiles differ\n{}", counters.lockstep_mismatches,
                            counters.lockstep_tiles, counters.lockstep_text));
  }
  if (counters.check_findings > 0) {
    throw Error(ErrorCode::kInternal, fmt::format("{} unsynchronised accesses in the program\n{}",
                                                  counters.check_findings, counters.check_text));
  }
}

}  // namespace tpu::driver
