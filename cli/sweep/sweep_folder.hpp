// The folder of a sweep: one folder a row, by what the row is and not by its number, so that rows
// keep their results when others come or go.
//   DIR/rows/ID/row.json      how the run ended; written last: without it the run is not over
//   DIR/rows/ID/figures.json  what the command says by --json
//   DIR/rows/ID/log.txt       what it prints
//   DIR/rows/ID/out/          --out of `train`
//   DIR/rows/ID/faults.log    --fault-log of a row with faults
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/sweep/sweep_file.hpp"

namespace tpu::driver {

enum class RowState { kNotRun, kDone, kFailed };

struct RowRecord {
  RowState state = RowState::kNotRun;
  std::string error;  ///< of a failed one, and of one that its faults have ended, which is done
  double host_seconds = 0;
  double cpu_seconds = 0;
};

class SweepFolder {
 public:
  SweepFolder(const std::filesystem::path& root, const Sweep& sweep);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path row(size_t number) const;
  std::filesystem::path log(size_t number) const { return row(number) / "log.txt"; }
  std::filesystem::path fault_log(size_t number) const { return row(number) / "faults.log"; }
  /// Of a file that may not be there.
  static std::string text(const std::filesystem::path& file);
  /// The command with its words, without the program in front.
  std::vector<std::string> words(size_t number) const;

  /// A row whose program, configuration or data have changed since, by size or time, is not run.
  RowRecord read(size_t number) const;
  /// What the command said by --json; null when it said nothing.
  nlohmann::ordered_json figures(size_t number) const;
  /// Empties the row's folder, which is there, of an earlier run. Throws Error
  /// (FailedPrecondition) when that run still goes on, or no row has written what is there.
  void begin(size_t number) const;
  /// What the row reads, as it is: taken before a run, which may not see what changes meanwhile.
  std::string stamp(size_t number) const;
  void end(size_t number, const RowRecord& record, const std::string& stamp) const;

 private:
  bool has_begun(size_t number) const;

  const std::filesystem::path root_;
  const Sweep& sweep_;
};

/// The error in what a command printed: behind its last "tpuboard: "; empty when there is none.
std::string error_in(const std::string& log);

}  // namespace tpu::driver
