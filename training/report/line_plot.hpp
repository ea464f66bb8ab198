// Curves as SVG.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpu::training {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x rises; what is not finite is left out
};

struct PlotText {
  std::string title;
  std::string x;
  bool log_x = false;
};

/// How line_plot() begins.
inline constexpr std::string_view kPlotHead =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ";

/// An <svg> element. Long curves are drawn by means over neighbouring points, short ones with dots.
std::string line_plot(const PlotText& text, const std::vector<Curve>& curves);

/// Text as it stands in HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace tpu::training
