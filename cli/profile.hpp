// Where the host's time goes (--profile): difference of two snapshots of the simulation's counters,
// as a table and as JSON, how far that is from what the host can do, and what other numbers of
// threads would reach. What the lines mean: docs/performance.md.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/host_limits.hpp"
#include "tpu/board.hpp"

namespace tpu::driver {

class ProfileWindow {
 public:
  /// Starts at once. The board was opened with SimOptions::profile; else nothing is shown.
  /// With `limits` each kind of work is compared with what the host can do.
  explicit ProfileWindow(const Board& board, std::optional<HostLimits> limits = {});

  /// Ends the window.
  void close();
  /// The table; times are divided by `launches`.
  void print(double launches) const;
  /// {work: {name: {seconds, count, amount, unit, ...}}} a launch, and the totals.
  nlohmann::ordered_json json(double launches) const;

 private:
  struct Line {
    const char* name;
    double seconds;
    const HostWorkTime* work;  // null: only time

    double per_second() const { return static_cast<double>(work->amount) / seconds; }
    double bytes_per_second() const { return static_cast<double>(work->bytes) / seconds; }
  };
  // What bounds a kind of work, and how near it is.
  struct Nearness {
    double share;  // 1: as fast as this host can
    const char* limit;
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
  std::optional<Nearness> nearness(const Line& line) const;
  void print_lines(const std::vector<Line>& lines, double launches) const;
  // Bytes of a kind that nobody moved, if there are any.
  void print_left_out(const std::string& kind, std::string_view text, double launches) const;
  void print_forecast() const;
  void print_limits() const;
  nlohmann::ordered_json work_json(const Line& line, double launches) const;

  Board board_;
  std::optional<HostLimits> limits_;
  std::chrono::steady_clock::time_point start_;
  double wall_ = 0;
  Usage usage_;
  std::vector<HostWorkTime> work_;
  std::vector<ThreadForecast> forecast_;
};

}  // namespace tpu::driver
