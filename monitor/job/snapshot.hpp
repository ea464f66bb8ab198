// What a job tells of itself at one moment, and what two such moments say: the types on which the
// terminal view, the JSON lines, Prometheus and the service of tpu-info stand. Written and read as
// JSON (docs/monitor.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpu/board.hpp"

namespace tpu::monitor {

using NamedValues = std::vector<std::pair<std::string, double>>;

/// How far a job is, as far as it counts steps.
struct Progress {
  int64_t step = 0;
  int64_t steps = 0;  ///< planned; 0: not known
  int64_t epoch = 0;  ///< 0: none
  std::optional<double> loss;
  NamedValues values;  ///< metrics, learning rate
};

/// A core: counts since it was reset, and its memory now.
struct CoreSnapshot {
  int chip = 0;
  uint64_t programs = 0;  ///< steps that ended
  uint64_t mxu_flops = 0;
  uint64_t hbm_read_bytes = 0;
  uint64_t hbm_written_bytes = 0;
  uint64_t link_sent_bytes = 0;
  uint64_t link_received_bytes = 0;
  uint64_t hbm_used = 0;
  uint64_t hbm_bytes = 0;
  driver::CoreTimes times;
};

struct Snapshot {
  int64_t pid = 0;
  uint64_t process_start = 0;  ///< with the pid it names a process for good
  std::string command;         ///< "tpuboard train c.toml", "python3 train.py"
  std::string board;           ///< "v3_8"
  double clock_hz = 0;
  uint64_t peak_flops_per_cycle = 0;  ///< of a core
  double started = 0;                 ///< seconds since 1970
  double taken = 0;                   ///< the same; when this was
  uint64_t cycles = 0;                ///< simulated time
  std::vector<CoreSnapshot> cores;
  std::optional<Progress> progress;
  /// Faults on purpose that have happened: kind, place, how often.
  std::vector<spec::FaultTally> faults;
};

/// Shares of a core's time; they sum to 1, or are all 0 when no simulated time passed.
struct TimeShares {
  double compute = 0, links = 0, hbm = 0, stalled = 0, input = 0, host = 0;

  /// No program ran.
  double idle() const { return input + host; }
};

struct CoreFigures {
  double mxu = 0;  ///< share of peak
  TimeShares time;
  double hbm_gbps = 0;   ///< read and written
  double link_gbps = 0;  ///< sent
};

/// What happened between two snapshots. Definitions: docs/timing_model.md.
struct Figures {
  double seconds = 0;        ///< of the host
  double board_seconds = 0;  ///< of the board
  double mxu = 0;            ///< mean of the cores that have run programs
  TimeShares time;           ///< the same
  double steps_per_second = 0;
  std::optional<double> left_seconds;  ///< until all steps are done
  std::vector<CoreFigures> cores;
};

Figures figures(const Snapshot& from, const Snapshot& to);

/// As Snapshot::taken.
double seconds_since_1970();

/// A snapshot with its figures, as it is published.
struct Report {
  Snapshot now;
  Figures lately;
};

/// One line without its end.
std::string json_line(const Report& report);
/// Throws driver::Error (InvalidArgument) for text that is none of ours; `name` is in the text.
Report report_from(const std::string& text, const std::string& name);

}  // namespace tpu::monitor
