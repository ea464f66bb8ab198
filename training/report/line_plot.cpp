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
constexpr size_t kFewPoints = 30;   // each with a dot
constexpr size_t kNamesOnTop = 3;   // more, or longer names, stand below the plot, one a line
constexpr size_t kNameLength = 16;  // what fits there
constexpr double kLine = 16;
constexpr std::array<const char*, 10> kColours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                                  "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f",
                                                  "#bcbd22", "#17becf"};

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

// Colours come again with another pattern of dashes.
std::string stroke(size_t number) {
  const char* colour = kColours[number % kColours.size()];
  const size_t round = number / kColours.size();
  return round == 0
             ? fmt::format("stroke=\"{}\"", colour)
             : fmt::format("stroke=\"{}\" stroke-dasharray=\"{} 3\"", colour, 2 + 4 * (round % 4));
}

std::string drawn_curve(const Points& points, Span x, Span y, size_t number) {
  std::string line;
  std::string dots;
  for (const auto& [at_x, at_y] : points) {
    const double left = kLeft + x.part(at_x) * (kWidth - kLeft - kRight);
    const double top = kHeight - kBottom - y.part(at_y) * (kHeight - kTop - kBottom);
    line += fmt::format("{:.1f},{:.1f} ", left, top);
    if (points.size() <= kFewPoints) {
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", left,
                          top, kColours[number % kColours.size()]);
    }
  }
  return fmt::format("<polyline fill=\"none\" {} stroke-width=\"1.5\" points=\"{}\"/>\n",
                     stroke(number), line) +
         dots;
}

bool names_below(const std::vector<Curve>& curves) {
  return curves.size() > kNamesOnTop ||
         std::any_of(curves.begin(), curves.end(),
                     [](const Curve& curve) { return curve.name.size() > kNameLength; });
}

std::string curve_name(const std::string& name, size_t number, size_t all, bool below) {
  const char* colour = kColours[number % kColours.size()];
  if (!below) {
    return fmt::format("<text x=\"{}\" y=\"18\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
                       kWidth - kRight - 110 * static_cast<double>(all - 1 - number), colour,
                       escaped(name));
  }
  const double at = kHeight + kLine * static_cast<double>(number) + 12;
  return fmt::format(
      "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {} stroke-width=\"1.5\"/>\n"
      "<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n",
      kLeft, at - 4, kLeft + 24, at - 4, stroke(number), kLeft + 30, at, colour, escaped(name));
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
  const bool below = names_below(curves);
  const double height = kHeight + (below ? kLine * static_cast<double>(curves.size()) + 8 : 0);
  std::string svg =
      fmt::format("{}{} {}\" width=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n",
                  kPlotHead, kWidth, height, kWidth);
  const Span x = span_of(points, true);
  const Span y = span_of(points, false);
  svg += axes(text, x, y);
  for (size_t i = 0; i < curves.size(); ++i) {
    svg += drawn_curve(points[i], x, y, i) + curve_name(curves[i].name, i, curves.size(), below);
  }
  return svg + "</svg>\n";
}

}  // namespace tpu::training
