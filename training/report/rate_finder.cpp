// The loss of a step was computed with the state that the rates before it have made.
#include "report/rate_finder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "file/files.hpp"
#include "numbers/elementary.hpp"
#include "report/line_plot.hpp"
#include "tpu/error.hpp"

namespace tpu::training {
namespace {

constexpr double kKeep = 0.9;      // of the smooth loss, a step
constexpr double kDiverged = 4;    // times the best loss
constexpr size_t kNeighbours = 3;  // on each side of a slope

void write_text(const std::filesystem::path& path, const std::string& text) {
  driver::write_file(path.string(), std::as_bytes(std::span(text)));
}

}  // namespace

std::vector<RatePoint> find_rate(Trainer& trainer, const TrainConfig& config,
                                 const RateSearch& search,
                                 const std::function<bool()>& stop_wanted) {
  if (!config.learning_rate) {
    throw driver::Error(driver::ErrorCode::kInvalidArgument,
                        "the program takes no learning rate; give [learning_rate] and its argument "
                        "or state leaf");
  }
  if (trainer.planned_steps(search.steps) < search.steps) {
    throw driver::Error(
        driver::ErrorCode::kInvalidArgument,
        fmt::format("the learning-rate finder needs {} steps, but all epochs have only "
                    "{}; give more epochs or fewer steps",
                    search.steps, trainer.planned_steps(0)));
  }
  const double factor =
      search.steps > 1 ? root(search.high / search.low, static_cast<int>(search.steps - 1)) : 1;
  std::vector<double> rates = {search.low};
  while (rates.size() < static_cast<size_t>(search.steps)) {
    rates.push_back(rates.back() * factor);
  }
  std::vector<RatePoint> points;
  double sum = 0;
  double weight = 0;
  double best = std::numeric_limits<double>::infinity();
  bool diverged = false;
  TrainHooks hooks;
  hooks.step = [&](const Progress& at) {
    const auto loss = static_cast<double>(at.loss);
    diverged = diverged || !std::isfinite(loss);
    if (diverged) {
      return;
    }
    sum = kKeep * sum + (1 - kKeep) * loss;
    weight = kKeep * weight + (1 - kKeep);
    points.push_back({rates[static_cast<size_t>(at.step - 1)], loss, sum / weight});
    best = std::min(best, points.back().smooth);
    diverged = best > 0 && points.back().smooth > kDiverged * best;
  };
  hooks.stop_wanted = [&] { return diverged || (stop_wanted && stop_wanted()); };
  const TrainLimits limits{
      .max_steps = search.steps, .checkpoint_every = 0, .learning_rate = [&](int64_t step) {
        return rates[static_cast<size_t>(step)];
      }};
  try {
    trainer.train(limits, hooks);
  } catch (const NotFinite&) {
    // That is what the search looks for.
  }
  return points;
}

double best_rate(const std::vector<RatePoint>& points) {
  double rate = 0;
  double steepest = 0;
  for (size_t i = kNeighbours; i + kNeighbours < points.size(); ++i) {
    const double slope = points[i + kNeighbours].smooth - points[i - kNeighbours].smooth;
    if (slope < steepest) {
      steepest = slope;
      rate = points[i].rate;
    }
  }
  return rate;
}

void write_rates(const std::filesystem::path& folder, const std::vector<RatePoint>& points) {
  std::string csv = "learning_rate,loss,smooth_loss\n";
  Curve loss{"loss", {}};
  Curve smooth{"smooth loss", {}};
  for (const RatePoint& point : points) {
    csv += fmt::format("{:.9g},{:.9g},{:.9g}\n", point.rate, point.loss, point.smooth);
    loss.points.emplace_back(point.rate, point.loss);
    smooth.points.emplace_back(point.rate, point.smooth);
  }
  write_text(folder / "learning_rates.csv", csv);
  write_text(folder / "learning_rates.svg",
             line_plot({.title = "loss by learning rate", .x = "learning rate", .log_x = true},
                       {loss, smooth}));
}

}  // namespace tpu::training
