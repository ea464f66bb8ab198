// A campaign: rows of a sweep whose boards fail on purpose (docs/campaigns.md), each classed
// against the row without faults that is otherwise the same.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/sweep/sweep_file.hpp"
#include "cli/sweep/sweep_folder.hpp"

namespace tpu::driver {

/// What became of a row with faults; the order is that of the tables.
enum class FaultClass : uint8_t {
  kNotFired,     ///< no fault of its file happened
  kMasked,       ///< faults happened; same result, and the board met no damage
  kCorrected,    ///< same result; the hardware met damage and corrected it
  kRecovered,    ///< same result; software repeated a step, a launch or a transfer
  kDetected,     ///< the run ended with an error in words
  kSilent,       ///< another result, and nothing said of it
  kHang,         ///< a step did not end within its limit
  kCrash,        ///< the process ended without an error in words
  kUnexplained,  ///< another result, though no fault happened: the board or this program is wrong
};
inline constexpr size_t kFaultClasses = static_cast<size_t>(FaultClass::kUnexplained) + 1;

/// "not fired", "masked", ...
std::string_view fault_class_name(FaultClass of);

/// A kind of fault and its place: "hbm", "core 3".
using FaultUnit = std::pair<std::string, std::string>;

/// What a fault log (--fault-log) has.
struct FaultLog {
  std::set<FaultUnit> fired;
  std::set<FaultUnit> met;    ///< damage that the board came upon
  std::set<FaultUnit> never;  ///< whose time did not come, or found nothing to damage
};
FaultLog parse_fault_log(std::string_view text);

/// How a row ended, beside its log.
struct RowEnd {
  bool ok = false;
  std::string error;    ///< of one that is not; empty: it gave none
  std::string result;   ///< digest and losses
  int64_t repeats = 0;  ///< of steps, launches and commands, by the trainer and the driver
};

/// `clean`: the result without faults. Nothing: there is nothing to compare, or the error has
/// nothing to do with faults.
std::optional<FaultClass> fault_class(const FaultLog& log, const RowEnd& end,
                                      const std::string& clean);

class Campaign {
 public:
  /// Of a sweep with rows that have faults.
  Campaign(const Sweep& sweep, const SweepFolder& folder, const std::vector<RowRecord>& records);

  /// Nothing for rows without faults and without a result.
  const std::optional<FaultClass>& of(size_t row) const { return rows_[row].found; }
  /// "hbm core 3, link_down link chip0 +x": what happened.
  std::string fired(size_t row) const;
  /// Fault files of which nothing happened in any row, with what never came.
  std::vector<std::string> idle_files() const;

  /// Rows of kUnexplained.
  std::vector<size_t> unexplained() const;

  /// Counts by kind, then by kind and place: columns of spaces, and as CSV.
  std::string text() const;
  std::string csv() const;
  nlohmann::ordered_json json() const;
  /// The same with all rows, as one page that needs no network.
  std::string page() const;

 private:
  using Counts = std::array<size_t, kFaultClasses>;
  struct Row {
    std::optional<FaultClass> found;
    FaultLog log;
    std::string error;
  };

  std::vector<std::vector<std::string>> lines() const;
  void count(const Row& row);

  const Sweep& sweep_;
  std::vector<Row> rows_;
  std::map<std::string, Counts> kinds_;
  std::map<FaultUnit, Counts> units_;
  Counts all_{};
};

}  // namespace tpu::driver
