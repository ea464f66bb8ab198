// What came out of a sweep: a table for people, CSV, JSON and plots, each against the first row.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/sweep/campaign.hpp"
#include "cli/sweep/sweep_file.hpp"
#include "cli/sweep/sweep_folder.hpp"

namespace tpu::driver {

/// A column of numbers.
struct SweepFigure {
  std::string key;    ///< in CSV, JSON and names of plots
  std::string title;  ///< in the table
  int digits = 0;
  bool is_time = false;  ///< compared by ratio; others by difference
};

inline constexpr const char* kCampaignPage = "campaign.html";

class SweepTable {
 public:
  SweepTable(const Sweep& sweep, const SweepFolder& folder);

  const std::vector<RowRecord>& records() const { return records_; }
  /// Those of the sweep's own that no row has as a number.
  const std::vector<std::string>& unknown_figures() const { return unknown_; }
  /// Columns of spaces.
  std::string text() const;
  std::string csv() const;
  nlohmann::ordered_json json() const;
  /// File name -> SVG: each figure by each axis of numbers, or by row where there is none.
  std::map<std::string, std::string> plots() const;

  /// What faults did; null: the sweep is not a campaign.
  const Campaign* campaign() const { return campaign_ ? &*campaign_ : nullptr; }

  /// sweep.csv, sweep.json and plots/; of a campaign also campaign.csv and campaign.html.
  void write() const;

 private:
  using Numbers = std::map<std::string, double>;  // by key of the figure

  nlohmann::ordered_json row_json(size_t row) const;
  void read_figures(size_t row);
  void keep_used_figures();
  std::string cell(size_t row, const SweepFigure& figure) const;
  std::string value(size_t row, const std::string& axis) const;
  std::string class_of(size_t row) const;
  std::string plot(const SweepFigure& figure, const std::string& axis) const;
  std::vector<std::string> plot_axes() const;

  const Sweep& sweep_;
  const SweepFolder& folder_;
  std::vector<RowRecord> records_;
  std::vector<Numbers> numbers_;
  std::vector<SweepFigure> figures_;
  std::vector<std::string> unknown_;
  std::optional<Campaign> campaign_;
};

}  // namespace tpu::driver
