// The figures of a run as files, written while it goes on: metrics.csv (steps), evaluations.csv,
// metrics.jsonl (both, one object a line), tensorboard/ (both). A run that goes on from a
// checkpoint keeps what the files have of the steps before it; so they are on the disk before the
// checkpoint is (sync()).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "report/event_file.hpp"
#include "report/run_figures.hpp"

namespace tpu::training {

class MetricsFiles {
 public:
  /// `step`: of the checkpoint that the run goes on from, 0: none. Throws Error.
  MetricsFiles(const std::filesystem::path& folder, int64_t step);

  void add(const FigureRow& row);
  /// All rows are on the disk when it returns, or finish() will throw.
  void sync();
  /// Throws Error (ResourceExhausted) when a file could not be written.
  void finish();

  /// All rows, also those of the run before the checkpoint.
  const std::vector<FigureRow>& rows() const { return rows_; }
  /// The files that a run writes into `folder`.
  static std::vector<std::string> files(const std::filesystem::path& folder);

 private:
  void read_rows(int64_t step);
  void begin_files();
  void write(const FigureRow& row);
  bool flush();

  std::filesystem::path folder_;
  std::vector<FigureRow> rows_;
  std::ofstream steps_;
  std::ofstream evaluations_;
  std::ofstream lines_;
  EventFile events_;
  bool steps_header_ = false;
  bool evaluations_header_ = false;
  std::chrono::steady_clock::time_point flushed_;
  std::string failure_;  // the first one, for finish()
};

}  // namespace tpu::training
