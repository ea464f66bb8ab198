// Plots are inline SVG; there is no script.
#include "report/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/line_plot.hpp"

namespace tpu::training {
namespace {

constexpr const char* kHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
    "<style>body{{font-family:sans-serif;max-width:60em;margin:2em auto}}"
    "td{{padding:.1em 1em .1em 0}}svg{{display:block;margin:1em 0}}</style></head>\n"
    "<body><h1>{0}</h1>\n";

std::string facts(const nlohmann::ordered_json& run) {
  std::string html = "<table>\n";
  for (const auto& [key, value] : run.items()) {
    if (!value.is_array() && !value.is_object() && !value.is_null()) {
      html += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(key),
                          escaped(value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
  return html + "</table>\n";
}

std::vector<std::string> names_of(const std::vector<FigureRow>& rows) {
  std::vector<std::string> names;
  for (const FigureRow& row : rows) {
    for (const Metric& metric : row.values) {
      if (std::find(names.begin(), names.end(), metric.name) == names.end()) {
        names.push_back(metric.name);
      }
    }
  }
  return names;
}

Curve curve(const std::vector<FigureRow>& rows, const std::string& name) {
  Curve made{name, {}};
  for (const FigureRow& row : rows) {
    for (const Metric& metric : row.values) {
      if (metric.name == name) {
        made.points.emplace_back(static_cast<double>(row.step), metric.value);
      }
    }
  }
  return made;
}

}  // namespace

std::string page_head(const std::string& title) {
  return fmt::format(fmt::runtime(kHead), escaped(title));
}

std::string report_page(const std::string& title, const nlohmann::ordered_json& run,
                        const std::vector<FigureRow>& rows) {
  std::string html = page_head(title) + facts(run);
  // A figure of the evaluations stands with the one of the steps that has its name.
  const std::vector<std::string> names = names_of(rows);
  for (const std::string& name : names) {
    const std::string test = "test_" + name;
    const bool both = std::find(names.begin(), names.end(), test) != names.end();
    const bool done = name.starts_with("test_") &&
                      std::find(names.begin(), names.end(), name.substr(5)) != names.end();
    if (done) {
      continue;
    }
    std::vector<Curve> curves = {curve(rows, name)};
    if (both) {
      curves.push_back(curve(rows, test));
    }
    html += line_plot({.title = name, .x = "step"}, curves);
  }
  return html + "</body></html>\n";
}

}  // namespace tpu::training
