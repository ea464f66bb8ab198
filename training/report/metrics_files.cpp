// metrics.jsonl is what a later run reads; the CSV files are made of the rows anew.
#include "report/metrics_files.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "file/files.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSteps = "metrics.csv";
constexpr const char* kEvaluations = "evaluations.csv";
constexpr const char* kLines = "metrics.jsonl";
constexpr const char* kEvents = "tensorboard";

std::string csv_header(const FigureRow& row) {
  std::string text = "step,epoch";
  for (const Metric& metric : row.values) {
    text += "," + metric.name;
  }
  return text + "\n";
}

std::string csv_line(const FigureRow& row) {
  std::string text = fmt::format("{},{}", row.step, row.epoch);
  for (const Metric& metric : row.values) {
    text += fmt::format(",{:.9g}", metric.value);
  }
  return text + "\n";
}

// JSON has no numbers that are not finite.
std::string json_line(const FigureRow& row) {
  Json json = {{"step", row.step}, {"epoch", row.epoch}};
  for (const Metric& metric : row.values) {
    json[metric.name] = std::isfinite(metric.value) ? Json(metric.value) : Json(nullptr);
  }
  return json.dump() + "\n";
}

FigureRow row_of(const Json& json) {
  FigureRow row;
  row.evaluation = true;  // unless there is a figure that only steps have
  for (const auto& [key, value] : json.items()) {
    if (key == "step" || key == "epoch") {
      (key == "step" ? row.step : row.epoch) = value.get<int64_t>();
      continue;
    }
    row.evaluation = row.evaluation && key.starts_with("test_");
    row.values.push_back(
        {key, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>()});
  }
  return row;
}

}  // namespace

MetricsFiles::MetricsFiles(const std::filesystem::path& folder, int64_t step)
    : folder_(folder), events_([&] {
        driver::make_folder(folder / kEvents);
        return EventFile(folder / kEvents, step);
      }()) {
  read_rows(step);
  begin_files();
}

// The rows that are kept are written anew as whole files: whenever the run is killed, they are
// there, and the rest is appended.
void MetricsFiles::begin_files() {
  std::string steps;
  std::string evaluations;
  std::string lines;
  for (const FigureRow& row : rows_) {
    std::string& csv = row.evaluation ? evaluations : steps;
    csv += (csv.empty() ? csv_header(row) : std::string()) + csv_line(row);
    lines += json_line(row);
  }
  steps_header_ = !steps.empty();
  evaluations_header_ = !evaluations.empty();
  const auto begin = [&](const char* name, const std::string& text, std::ofstream& file) {
    try {
      const std::filesystem::path path = folder_ / name;
      driver::write_file(path.string(), std::as_bytes(std::span(text)),
                         driver::Durability::kSynced);
      file.open(path, std::ios::binary | std::ios::app);
    } catch (const driver::Error& error) {
      failure_ = failure_.empty() ? error.message() : failure_;
    }
  };
  begin(kLines, lines, lines_);
  begin(kSteps, steps, steps_);
  begin(kEvaluations, evaluations, evaluations_);
}

// A line that a crash has cut is left out.
void MetricsFiles::read_rows(int64_t step) {
  std::ifstream file(folder_ / kLines, std::ios::binary);
  for (std::string line; step > 0 && std::getline(file, line);) {
    try {
      FigureRow row = row_of(Json::parse(line));
      if (row.step <= step) {
        rows_.push_back(std::move(row));
      }
    } catch (const Json::exception&) {
      continue;
    }
  }
}

void MetricsFiles::write(const FigureRow& row) {
  std::ofstream& csv = row.evaluation ? evaluations_ : steps_;
  bool& header = row.evaluation ? evaluations_header_ : steps_header_;
  if (!header) {
    csv << csv_header(row);
    header = true;
  }
  csv << csv_line(row);
  lines_ << json_line(row);
}

void MetricsFiles::add(const FigureRow& row) {
  if (row.values.empty()) {
    return;
  }
  rows_.push_back(row);
  write(row);
  events_.add(row.step, row.values);
  // Who looks at a run that goes on need not wait for its end.
  if (const auto now = std::chrono::steady_clock::now(); now - flushed_ > std::chrono::seconds(1)) {
    flushed_ = now;
    flush();
  }
}

bool MetricsFiles::flush() {
  steps_.flush();
  evaluations_.flush();
  lines_.flush();
  return events_.flush() && steps_.good() && evaluations_.good() && lines_.good();
}

void MetricsFiles::sync() {
  if (!flush()) {
    return;
  }
  try {
    for (const char* name : {kLines, kSteps, kEvaluations}) {
      driver::sync_file((folder_ / name).string());
    }
  } catch (const driver::Error& error) {
    failure_ = failure_.empty() ? error.message() : failure_;
  }
}

void MetricsFiles::finish() {
  if (!flush() || !failure_.empty()) {
    throw driver::Error(
        driver::ErrorCode::kResourceExhausted,
        fmt::format("{}: the metrics of the run could not be written{}", folder_.string(),
                    failure_.empty() ? "; free space on the disk" : ": " + failure_));
  }
}

std::vector<std::string> MetricsFiles::files(const std::filesystem::path& folder) {
  return {(folder / kSteps).string(), (folder / kEvaluations).string(), (folder / kLines).string()};
}

}  // namespace tpu::training
