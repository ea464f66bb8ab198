// One plot is 760 x 240 units, with the numbers of both axes at their ends and in the middle.
#include "report/line_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tpu::training {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 240;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 30;
constexpr double kBottom = 40;
constexpr size_t kMostPoints = 600;
constexpr std::array<const char*, 4> kColours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd"};

struct Span {
  double low = 0;
  double high = 1;

  double part(double value) const { return (value - low) / (high - low); }
};

using Points = std::vector<std::pair<double, double>>;

Points drawn(const Curve& curve, bool log_x) {
  Points finite;
  for (const auto& [x, y] : curve.points) {
    if (std::isfinite(y) && (!log_x || x > 0)) {
      finite.emplace_back(log_x ? std::log10(x) : x, y);
    }
  }
  const size_t group = (finite.size() + kMostPoints - 1) / kMostPoints;
  if (group <= 1) {
    return finite;
  }
  Points means;
  for (size_t first = 0; first < finite.size(); first += group) {
    const size_t last = std::min(finite.size(), first + group);
    const auto count = static_cast<double>(last - first);
    std::pair<double, double> mean{0, 0};
    for (size_t i = first; i < last; ++i) {
      mean.first += finite[i].first / count;
      mean.second += finite[i].second / count;
    }
    means.push_back(mean);
  }
  return means;
}

Span span_of(const std::vector<Points>& curves, bool of_x) {
  Span span;
  bool first = true;
  for (const Points& points : curves) {
    for (const auto& [x, y] : points) {
      const double value = of_x ? x : y;
      span.low = first ? value : std::min(span.low, value);
      span.high = first ? value : std::max(span.high, value);
      first = false;
    }
  }
  if (span.high <= span.low) {  // one point, or a constant
    const double margin = std::max(1.0, std::fabs(span.low)) / 2;
    return {span.low - margin, span.high + margin};
  }
  return span;
}

std::string axes(const PlotText& text, Span x, Span y) {
  std::string svg = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#999\"/>\n", kLeft,
      kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom);
  for (const double part : {0.0, 0.5, 1.0}) {
    const double at_x = x.low + part * (x.high - x.low);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g}</text>\n",
                       kLeft + part * (kWidth - kLeft - kRight), kHeight - kBottom + 16,
                       text.log_x ? std::pow(10.0, at_x) : at_x);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n", kLeft - 6,
                       kHeight - kBottom - part * (kHeight - kTop - kBottom) + 4,
                       y.low + part * (y.high - y.low));
  }
  return svg + fmt::format(
                   "<text x=\"{}\" y=\"18\" font-weight=\"bold\">{}</text>\n"
                   "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                   kLeft, escaped(text.title), kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 6,
                   escaped(text.x));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string line_plot(const PlotText& text, const std::vector<Curve>& curves) {
  std::vector<Points> points;
  for (const Curve& curve : curves) {
    points.push_back(drawn(curve, text.log_x));
  }
  const Span x = span_of(points, true);
  const Span y = span_of(points, false);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, kHeight, kWidth);
  svg += axes(text, x, y);
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* colour = kColours[i % kColours.size()];
    std::string line;
    for (const auto& [at_x, at_y] : points[i]) {
      line += fmt::format("{:.1f},{:.1f} ", kLeft + x.part(at_x) * (kWidth - kLeft - kRight),
                          kHeight - kBottom - y.part(at_y) * (kHeight - kTop - kBottom));
    }
    svg += fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n"
        "<text x=\"{}\" y=\"18\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
        colour, line, kWidth - kRight - 110 * static_cast<double>(curves.size() - 1 - i), colour,
        escaped(curves[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace tpu::training
