// The file of a sweep: which command runs again and again, and with what each time
// (docs/sweep.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tpu::driver {

struct SweepValue {
  std::string text;
  std::optional<double> number;  ///< what a plot can have as an axis
};

/// One run.
struct SweepRow {
  std::string name;                          ///< the file's, or the values of its axes
  std::vector<std::string> words;            ///< behind the name of the command
  std::map<std::string, SweepValue> values;  ///< all that is given to it, by key
  std::optional<size_t> clean;  ///< of one with faults: the row that is the same without them
};

struct Sweep {
  std::string file;
  std::string folder;                ///< of the file; relative paths start there
  std::string command;               ///< train, run or bench
  std::vector<std::string> axes;     ///< keys that [grid], [[zip]] and [[row]] name, in their order
  std::vector<std::string> figures;  ///< more of the command's JSON for the table, as "a.b"
  std::vector<std::pair<std::string, std::string>> slurm;  ///< options of sbatch
  std::vector<SweepRow> rows;
  bool campaign = false;  ///< rows are classed by what their faults did (campaign.hpp)
};

/// Throws Error (InvalidArgument) that names file, line and key, and for a row that the command
/// would not take.
Sweep load_sweep(const std::string& path);

}  // namespace tpu::driver
