// Clocks of the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace tpu::benchmarks {

// Lowers `best`, in seconds of wall time.
template <class F>
void keep_best(double& best, F&& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  best = std::min(best, took.count());
}

// Time of this thread alone: other work on the host does not count.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace tpu::benchmarks
