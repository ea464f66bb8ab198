// Where the host's time goes (--profile): difference of two snapshots of the simulation's counters,
// as a table and as JSON. What the lines mean: docs/performance.md.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "tpu/board.hpp"

namespace tpu::driver {

class ProfileWindow {
 public:
  /// Starts at once. The board was opened with SimOptions::profile; else nothing is shown.
  explicit ProfileWindow(const Board& board);

  /// Ends the window.
  void close();
  /// The table; times are divided by `launches`.
  void print(double launches) const;
  /// {name: {seconds, count, amount, unit}} a launch, and the totals.
  nlohmann::ordered_json json(double launches) const;

 private:
  struct Line {
    const char* name;
    double seconds;
    const HostWorkTime* work;  // null: only time
  };
  struct Usage {
    double user = 0;
    double system = 0;
    uint64_t page_faults = 0;
  };
  static Usage usage();
  const HostWorkTime& work(const std::string& name) const;
  double seconds(const std::string& name) const { return work(name).seconds; }
  std::vector<Line> work_lines() const;
  std::vector<Line> kernel_lines() const;

  Board board_;
  std::chrono::steady_clock::time_point start_;
  double wall_ = 0;
  Usage usage_;
  std::vector<HostWorkTime> work_;
};

}  // namespace tpu::driver
