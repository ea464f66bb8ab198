// Classes come from what a row leaves behind, never from how long it took.
#include "cli/sweep/campaign.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "cli/sweep/table_text.hpp"
#include "report/line_plot.hpp"
#include "report/report_page.hpp"

namespace tpu::driver {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, kFaultClasses> kNames = {
    "not fired", "masked", "corrected", "recovered",  "detected",
    "silent",    "hang",   "crash",     "unexplained"};

// Damage of these kinds the hardware corrects by itself: ECC, links that send again, and transfers
// that wait for a link.
constexpr std::array<std::string_view, 5> kCorrects = {"hbm", "vmem", "smem", "link_corrupt",
                                                       "link_down"};
// Damage that nothing on the board meets: the log says where it is.
constexpr std::string_view kUnseen = "mxu";

// "hbm core 3" of "KIND PLACE": a kind has no spaces.
FaultUnit unit_of(std::string_view text) {
  const size_t space = std::min(text.find(' '), text.size());
  return {std::string(text.substr(0, space)),
          std::string(text.substr(std::min(space + 1, text.size())))};
}

// "fault 2 (line 5: hbm in core 3, step 9) never came"
std::optional<FaultUnit> never_came(std::string_view line) {
  const size_t colon = line.find(": ");
  const size_t in = line.find(" in ", colon);
  const size_t comma = line.find(", ", in);
  if (!line.starts_with("fault ") || !line.ends_with(" never came") || comma == line.npos) {
    return std::nullopt;
  }
  return FaultUnit(line.substr(colon + 2, in - colon - 2), line.substr(in + 4, comma - in - 4));
}

bool corrects(const FaultUnit& unit) {
  return std::ranges::find(kCorrects, unit.first) != kCorrects.end();
}

// Of a step that goes on for ever, by the board's cycles or by the host's clock.
bool never_ends(const std::string& error) {
  return error.find("WATCHDOG: the step does not end") != error.npos ||
         error.find("completed no step in ") != error.npos;
}

std::string unit_text(const FaultUnit& unit) { return unit.first + " " + unit.second; }

std::string joined(const std::set<FaultUnit>& units) {
  std::string text;
  for (const FaultUnit& unit : units) {
    text += (text.empty() ? "" : ", ") + unit_text(unit);
  }
  return text;
}

std::string html_row(const std::vector<std::string>& cells, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& cell : cells) {
    html += fmt::format("<{0}>{1}</{0}>", tag, training::escaped(cell));
  }
  return html + "</tr>\n";
}

}  // namespace

std::string_view fault_class_name(FaultClass of) { return kNames[static_cast<size_t>(of)]; }

FaultLog parse_fault_log(std::string_view text) {
  FaultLog log;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const auto unit = never_came(line)) {
      log.never.insert(*unit);
      continue;
    }
    const size_t bracket = line.starts_with("[") ? line.find("] ") : line.npos;
    const size_t colon = line.find(": ");
    if (bracket == line.npos || colon == line.npos) {
      continue;
    }
    line = line.substr(bracket + 2, colon - bracket - 2);
    for (const auto& [word, units] :
         {std::pair<std::string_view, std::set<FaultUnit>*>("fault ", &log.fired),
          std::pair<std::string_view, std::set<FaultUnit>*>("damage ", &log.met),
          std::pair<std::string_view, std::set<FaultUnit>*>("nothing ", &log.never)}) {
      if (line.starts_with(word)) {
        units->insert(unit_of(line.substr(word.size())));
      }
    }
  }
  std::erase_if(log.met, [](const FaultUnit& unit) { return unit.first == kUnseen; });
  return log;
}

std::optional<FaultClass> fault_class(const FaultLog& log, const RowEnd& end,
                                      const std::string& clean) {
  if (end.ok) {
    if (clean.empty() || end.result.empty()) {
      return std::nullopt;
    }
    const bool same = end.result == clean;
    if (log.fired.empty()) {
      return same ? FaultClass::kNotFired : FaultClass::kUnexplained;
    }
    if (!same) {
      return FaultClass::kSilent;
    }
    if (end.repeats > 0 || !std::ranges::all_of(log.met, corrects)) {
      return FaultClass::kRecovered;
    }
    return log.met.empty() ? FaultClass::kMasked : FaultClass::kCorrected;
  }
  if (log.fired.empty()) {
    return std::nullopt;
  }
  return end.error.empty()       ? FaultClass::kCrash
         : never_ends(end.error) ? FaultClass::kHang
                                 : FaultClass::kDetected;
}

Campaign::Campaign(const Sweep& sweep, const SweepFolder& folder,
                   const std::vector<RowRecord>& records)
    : sweep_(sweep), rows_(records.size()) {
  const auto repeats = [](const Json& figures) {
    return figures.is_object()
               ? figures.value("replays", int64_t{0}) + figures.value("recoveries", int64_t{0})
               : 0;
  };
  // Losses are no part of the state: they, too, may be wrong.
  const auto result = [&](size_t row) {
    const bool whole = records[row].state == RowState::kDone;
    const Json figures = whole ? folder.figures(row) : Json();
    const bool has_digest = figures.is_object() && figures.value("digest", Json()).is_string();
    return has_digest
               ? figures["digest"].get<std::string>() + figures.value("losses", Json()).dump()
               : std::string();
  };
  for (size_t row = 0; row < rows_.size(); ++row) {
    const std::optional<size_t> clean = sweep_.rows[row].clean;
    if (!clean || records[row].state == RowState::kNotRun) {
      continue;
    }
    const RowRecord& record = records[row];
    rows_[row].log = parse_fault_log(folder.text(folder.fault_log(row)));
    rows_[row].error = record.error;
    rows_[row].found =
        fault_class(rows_[row].log,
                    {.ok = record.error.empty(),
                     .error = record.state == RowState::kDone ? record.error : std::string(),
                     .result = result(row),
                     .repeats = repeats(folder.figures(row))},
                    result(*clean));
    count(rows_[row]);
  }
}

void Campaign::count(const Row& row) {
  if (!row.found) {
    return;
  }
  const auto at = static_cast<size_t>(*row.found);
  ++all_[at];
  std::set<std::string> kinds;
  for (const FaultUnit& unit : row.log.fired.empty() ? row.log.never : row.log.fired) {
    ++units_.try_emplace(unit).first->second[at];
    kinds.insert(unit.first);
  }
  for (const std::string& kind : kinds) {
    ++kinds_.try_emplace(kind).first->second[at];
  }
}

std::string Campaign::fired(size_t row) const { return joined(rows_[row].log.fired); }

std::vector<size_t> Campaign::unexplained() const {
  std::vector<size_t> rows;
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].found == FaultClass::kUnexplained) {
      rows.push_back(row);
    }
  }
  return rows;
}

std::vector<std::string> Campaign::idle_files() const {
  std::map<std::string, std::set<FaultUnit>> never;
  std::set<std::string> busy;
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (!rows_[row].found) {
      continue;
    }
    const std::string& file = sweep_.rows[row].values.at("faults").text;
    if (rows_[row].log.fired.empty()) {
      never[file].insert(rows_[row].log.never.begin(), rows_[row].log.never.end());
    } else {
      busy.insert(file);
    }
  }
  std::vector<std::string> files;
  for (const auto& [file, units] : never) {
    if (!busy.contains(file)) {
      files.push_back(fmt::format(
          "{}: no fault of this file happened in any row ({}); its times or places do not occur "
          "in this program",
          file, joined(units)));
    }
  }
  return files;
}

// The head, all rows, then each kind with its places.
std::vector<std::vector<std::string>> Campaign::lines() const {
  std::vector<std::vector<std::string>> lines(1, {"kind", "place"});
  lines[0].insert(lines[0].end(), kNames.begin(), kNames.end());
  const auto add = [&](const std::string& kind, const std::string& place, const Counts& counts) {
    lines.push_back({kind, place});
    for (const size_t each : counts) {
      lines.back().push_back(std::to_string(each));
    }
  };
  add("all", "all", all_);
  for (const auto& [kind, counts] : kinds_) {
    add(kind, "all", counts);
    for (const auto& [unit, of_unit] : units_) {
      if (unit.first == kind) {
        add(kind, unit.second, of_unit);
      }
    }
  }
  return lines;
}

std::string Campaign::text() const { return aligned(lines(), 2); }

std::string Campaign::csv() const {
  std::string text;
  for (const std::vector<std::string>& line : lines()) {
    std::vector<std::string> cells;
    std::ranges::transform(line, std::back_inserter(cells), csv_cell);
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

Json Campaign::json() const {
  const auto counts = [](const Counts& of) {
    Json json = Json::object();
    for (size_t i = 0; i < of.size(); ++i) {
      json[std::string(kNames[i])] = of[i];
    }
    return json;
  };
  Json json = {{"all", counts(all_)}, {"kinds", Json::object()}, {"units", Json::object()}};
  for (const auto& [kind, of_kind] : kinds_) {
    json["kinds"][kind] = counts(of_kind);
  }
  for (const auto& [unit, of_unit] : units_) {
    json["units"][unit_text(unit)] = counts(of_unit);
  }
  return json;
}

std::string Campaign::page() const {
  std::string html = training::page_head("Faults: " + sweep_.file);
  html += "<h2>By kind and place</h2>\n<table>\n";
  const auto counted = lines();
  for (size_t i = 0; i < counted.size(); ++i) {
    html += html_row(counted[i], i == 0 ? "th" : "td");
  }
  html += "</table>\n<h2>Rows</h2>\n<table>\n";
  html += html_row({"row", "name", "class", "happened", "error"}, "th");
  for (size_t row = 0; row < rows_.size(); ++row) {
    const Row& each = rows_[row];
    html += html_row({std::to_string(row), sweep_.rows[row].name,
                      each.found ? std::string(fault_class_name(*each.found)) : "-", fired(row),
                      brief(each.error)},
                     "td");
  }
  return html + "</table>\n</body></html>\n";
}

}  // namespace tpu::driver
