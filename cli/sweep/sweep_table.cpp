// A figure that no row has is no column.
#include "cli/sweep/sweep_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "cli/sweep/table_text.hpp"
#include "file/files.hpp"
#include "format/json_output.hpp"
#include "report/line_plot.hpp"

namespace tpu::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlots = "plots";
constexpr int kGeneral = -1;  // digits of a figure of any size

bool is_whole(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  return value == std::floor(value) && std::fabs(value) < kExact;
}

std::string number_text(double value, int digits, bool with_sign) {
  if (digits == kGeneral && is_whole(value)) {  // cycles have more than six digits
    digits = 0;
  }
  if (digits == kGeneral) {
    return with_sign ? fmt::format("{:+.6g}", value) : fmt::format("{:.6g}", value);
  }
  return with_sign ? fmt::format("{:+.{}f}", value, digits) : fmt::format("{:.{}f}", value, digits);
}

// "a.b" of nested objects.
const Json* at_path(const Json& json, const std::string& path) {
  const Json* at = &json;
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const auto found = at->is_object() ? at->find(path.substr(from, dot - from)) : at->end();
    if (!at->is_object() || found == at->end()) {
      return nullptr;
    }
    at = &*found;
    from = dot + 1;
  }
  return at;
}

// A whole number as one.
Json number_json(double value) {
  return is_whole(value) ? Json(static_cast<int64_t>(value)) : Json(value);
}

const char* state_name(RowState state) {
  switch (state) {
    case RowState::kDone:
      return "done";
    case RowState::kFailed:
      return "failed";
    default:
      return "not run";
  }
}

}  // namespace

SweepTable::SweepTable(const Sweep& sweep, const SweepFolder& folder)
    : sweep_(sweep), folder_(folder), numbers_(sweep.rows.size()) {
  figures_ = {{"step_ms", "step ms", 4, true},
              {"mxu_percent", "MXU %", 2},
              {"idle_percent", "idle %", 2},
              {"loss", "loss", 4},
              {"accuracy", "accuracy", 4}};
  for (const std::string& path : sweep.figures) {
    const bool there = std::any_of(figures_.begin(), figures_.end(),
                                   [&](const SweepFigure& each) { return each.key == path; });
    if (!there) {
      figures_.push_back({path, path, kGeneral});
    }
  }
  figures_.push_back({"host_s", "host s", 2, true});
  figures_.push_back({"cpu_s", "CPU s", 2, true});
  for (size_t row = 0; row < sweep.rows.size(); ++row) {
    records_.push_back(folder.read(row));
    read_figures(row);
  }
  keep_used_figures();
  if (sweep.campaign) {
    campaign_.emplace(sweep, folder, records_);
  }
}

void SweepTable::read_figures(size_t row) {
  const RowRecord& record = records_[row];
  if (record.state != RowState::kDone) {
    return;
  }
  const Json json = folder_.figures(row);
  const auto take = [&](const std::string& key, const std::string& path, double scale) {
    const Json* found = at_path(json, path);
    if (found != nullptr && found->is_number()) {
      numbers_[row][key] = found->get<double>() * scale;
    }
  };
  constexpr double kMs = 1e3;
  if (sweep_.command == "train") {
    take("step_ms", "sim_seconds_per_step", kMs);
  } else if (sweep_.command == "run") {
    const Json* launches = at_path(json, "launches");
    const double count = launches != nullptr && launches->is_number() ? launches->get<double>() : 1;
    take("step_ms", "sim_seconds", kMs / count);
  } else {
    take("step_ms", "sim_us_per_launch.value", 1 / kMs);
  }
  take("mxu_percent", "mxu_utilization", 100);
  take("idle_percent", "idle", 100);
  take("loss", "train_loss", 1);
  take("accuracy", "test_accuracy", 1);
  for (const std::string& path : sweep_.figures) {
    take(path, path, 1);
  }
  numbers_[row]["host_s"] = record.host_seconds;
  numbers_[row]["cpu_s"] = record.cpu_seconds;
}

void SweepTable::keep_used_figures() {
  const auto unused = [&](const SweepFigure& figure) {
    return std::none_of(numbers_.begin(), numbers_.end(),
                        [&](const Numbers& row) { return row.contains(figure.key); });
  };
  for (const SweepFigure& figure : figures_) {
    const auto& wanted = sweep_.figures;
    if (unused(figure) && std::find(wanted.begin(), wanted.end(), figure.key) != wanted.end()) {
      unknown_.push_back(figure.key);
    }
  }
  std::erase_if(figures_, unused);
}

std::string SweepTable::value(size_t row, const std::string& axis) const {
  const auto found = sweep_.rows[row].values.find(axis);
  return found == sweep_.rows[row].values.end() ? "-" : found->second.text;
}

std::string SweepTable::class_of(size_t row) const {
  const auto found = campaign_ ? campaign_->of(row) : std::nullopt;
  return found ? std::string(fault_class_name(*found)) : "-";
}

// The number, and behind it how it compares: 2.00x of a time is half of it.
std::string SweepTable::cell(size_t row, const SweepFigure& figure) const {
  const auto own = numbers_[row].find(figure.key);
  if (own == numbers_[row].end()) {
    return "-";
  }
  std::string text = number_text(own->second, figure.digits, false);
  const auto first = numbers_[0].find(figure.key);
  if (row == 0 || first == numbers_[0].end()) {
    return text;
  }
  if (!figure.is_time) {
    return text +
           fmt::format(" ({})", number_text(own->second - first->second, figure.digits, true));
  }
  return own->second > 0 ? text + fmt::format(" ({:.2f}x)", first->second / own->second) : text;
}

std::string SweepTable::text() const {
  std::vector<std::vector<std::string>> lines(1, {"row"});
  lines[0].insert(lines[0].end(), sweep_.axes.begin(), sweep_.axes.end());
  if (campaign_) {
    lines[0].emplace_back("class");
  }
  for (const SweepFigure& figure : figures_) {
    lines[0].push_back(figure.title);
  }
  lines[0].emplace_back("");
  for (size_t row = 0; row < records_.size(); ++row) {
    std::vector<std::string> line = {std::to_string(row)};
    for (const std::string& axis : sweep_.axes) {
      line.push_back(value(row, axis));
    }
    if (campaign_) {
      line.push_back(class_of(row));
    }
    for (const SweepFigure& figure : figures_) {
      line.push_back(cell(row, figure));
    }
    const RowRecord& record = records_[row];
    line.push_back(record.state == RowState::kDone     ? brief(record.error)
                   : record.state == RowState::kFailed ? "failed: " + brief(record.error)
                                                       : "not run");
    lines.push_back(line);
  }
  return aligned(lines, 1 + sweep_.axes.size() + (campaign_ ? 1 : 0));
}

std::string SweepTable::csv() const {
  std::string text = "row,name,state";
  for (const std::string& axis : sweep_.axes) {
    text += "," + csv_cell(axis);
  }
  for (const SweepFigure& figure : figures_) {
    text += "," + csv_cell(figure.key);
  }
  for (const SweepFigure& figure : figures_) {
    text += "," + csv_cell(figure.key + "_against_first");
  }
  text += std::string(campaign_ ? ",class,happened" : "") + ",folder,error\n";
  for (size_t row = 0; row < records_.size(); ++row) {
    text += fmt::format("{},{},{}", row, csv_cell(sweep_.rows[row].name),
                        state_name(records_[row].state));
    for (const std::string& axis : sweep_.axes) {
      text += "," + csv_cell(value(row, axis));
    }
    const Json json = row_json(row);
    for (const char* part : {"figures", "against_first"}) {
      for (const SweepFigure& figure : figures_) {
        const auto found = json[part].find(figure.key);
        text += found == json[part].end() ? "," : "," + number_json(found->get<double>()).dump();
      }
    }
    if (campaign_) {
      text += "," + class_of(row) + "," + csv_cell(campaign_->fired(row));
    }
    text += "," + csv_cell(folder_.row(row).string()) + "," + csv_cell(records_[row].error) + "\n";
  }
  return text;
}

Json SweepTable::row_json(size_t row) const {
  const RowRecord& record = records_[row];
  Json json = {{"row", row},
               {"name", sweep_.rows[row].name},
               {"state", state_name(record.state)},
               {"folder", folder_.row(row).string()},
               {"words", folder_.words(row)},
               {"values", Json::object()},
               {"figures", Json::object()},
               {"against_first", Json::object()}};
  if (!record.error.empty()) {
    json["error"] = record.error;
  }
  if (campaign_ && campaign_->of(row)) {
    json["class"] = class_of(row);
    json["happened"] = campaign_->fired(row);
  }
  for (const std::string& axis : sweep_.axes) {
    const auto found = sweep_.rows[row].values.find(axis);
    if (found != sweep_.rows[row].values.end()) {
      const SweepValue& value = found->second;
      json["values"][axis] = value.number ? number_json(*value.number) : Json(value.text);
    }
  }
  for (const SweepFigure& figure : figures_) {
    const auto own = numbers_[row].find(figure.key);
    const auto first = numbers_[0].find(figure.key);
    if (own == numbers_[row].end()) {
      continue;
    }
    json["figures"][figure.key] = own->second;
    if (first == numbers_[0].end() || (figure.is_time && own->second <= 0)) {
      continue;
    }
    json["against_first"][figure.key] =
        figure.is_time ? first->second / own->second : own->second - first->second;
  }
  return json;
}

Json SweepTable::json() const {
  Json json = {{"file", sweep_.file}, {"command", sweep_.command}, {"axes", sweep_.axes}};
  json["rows"] = Json::array();
  for (size_t row = 0; row < records_.size(); ++row) {
    json["rows"].push_back(row_json(row));
  }
  if (campaign_) {
    json["campaign"] = campaign_->json();
  }
  return json;
}

// Axes that have at least two numbers, and no texts.
std::vector<std::string> SweepTable::plot_axes() const {
  std::vector<std::string> axes;
  for (const std::string& axis : sweep_.axes) {
    std::set<double> numbers;
    bool texts = false;
    for (const SweepRow& row : sweep_.rows) {
      const auto found = row.values.find(axis);
      if (found == row.values.end()) {
        continue;
      }
      texts = texts || !found->second.number;
      numbers.insert(found->second.number.value_or(0));
    }
    if (!texts && numbers.size() > 1) {
      axes.push_back(axis);
    }
  }
  return axes;
}

// A curve for each combination of the other axes. `axis` empty: one over the rows.
std::string SweepTable::plot(const SweepFigure& figure, const std::string& axis) const {
  std::vector<training::Curve> curves;
  for (size_t row = 0; row < records_.size(); ++row) {
    const auto number = numbers_[row].find(figure.key);
    const auto at = sweep_.rows[row].values.find(axis);
    if (number == numbers_[row].end() || (!axis.empty() && at == sweep_.rows[row].values.end())) {
      continue;
    }
    std::string name;
    for (const std::string& other : axis.empty() ? std::vector<std::string>() : sweep_.axes) {
      if (other != axis && sweep_.rows[row].values.contains(other)) {
        name += (name.empty() ? "" : " ") + other + "=" + value(row, other);
      }
    }
    auto curve = std::find_if(curves.begin(), curves.end(),
                              [&](const training::Curve& each) { return each.name == name; });
    if (curve == curves.end()) {
      curve = curves.insert(curves.end(), {name, {}});
    }
    curve->points.emplace_back(axis.empty() ? static_cast<double>(row) : *at->second.number,
                               number->second);
  }
  for (training::Curve& curve : curves) {
    std::sort(curve.points.begin(), curve.points.end());
  }
  return training::line_plot({.title = figure.title, .x = axis.empty() ? "row" : axis}, curves);
}

std::map<std::string, std::string> SweepTable::plots() const {
  std::vector<std::string> axes = plot_axes();
  if (axes.empty()) {
    axes.emplace_back();
  }
  std::map<std::string, std::string> files;
  for (const SweepFigure& figure : figures_) {
    for (const std::string& axis : axes) {
      std::string name = fmt::format("{}_by_{}.svg", figure.key, axis.empty() ? "row" : axis);
      std::replace(name.begin(), name.end(), '/', '_');
      files[name] = plot(figure, axis);
    }
  }
  return files;
}

namespace {

// What an earlier write() has drawn, and nothing else that lies there.
void remove_plots(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (!name.ends_with(".svg") || name.find("_by_") == std::string::npos ||
        !fs::is_regular_file(at->symlink_status(unknown))) {
      continue;
    }
    const std::vector<std::byte> bytes = read_file(at->path().string());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.starts_with(training::kPlotHead)) {
      fs::remove(at->path(), unknown);
    }
  }
}

}  // namespace

void SweepTable::write() const {
  const auto write_text = [&](const std::string& name, const std::string& text) {
    write_file((folder_.root() / name).string(), std::as_bytes(std::span(text)));
  };
  write_text("sweep.csv", csv());
  write_json_file((folder_.root() / "sweep.json").string(), json());
  if (campaign_) {
    write_text("campaign.csv", campaign_->csv());
    write_text(kCampaignPage, campaign_->page());
  }
  make_folder(folder_.root() / kPlots);
  remove_plots(folder_.root() / kPlots);  // those of axes that are no more
  for (const auto& [name, svg] : plots()) {
    write_text(std::string(kPlots) + "/" + name, svg);
  }
}

}  // namespace tpu::driver
