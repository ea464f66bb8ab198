// Curves as SVG.
#pragma once

#include <string>
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

/// An <svg> element. Long curves are drawn by means over neighbouring points, short ones with dots.
std::string line_plot(const PlotText& text, const std::vector<Curve>& curves);

/// Text as it stands in HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace tpu::training
