// Learning-rate finder: a short training in which the rate grows by the same factor each step; a
// good rate lies where the loss falls fastest (Smith, 2017).
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "loop/trainer.hpp"

namespace tpu::training {

struct RateSearch {
  double low = 1e-7;
  double high = 10;
  int64_t steps = 100;
};

struct RatePoint {
  double rate = 0;
  double loss = 0;
  double smooth = 0;  ///< mean over the steps before, those near it count more
};

/// Ends before `steps` when the loss is four times its best or not finite, and when `stop_wanted`.
/// Throws InvalidArgument when the configuration has no [learning_rate], or epochs for fewer steps.
std::vector<RatePoint> find_rate(Trainer& trainer, const TrainConfig& config,
                                 const RateSearch& search,
                                 const std::function<bool()>& stop_wanted);

/// The rate at which the smooth loss falls fastest; 0 when it falls nowhere.
double best_rate(const std::vector<RatePoint>& points);

/// learning_rates.csv and learning_rates.svg. Throws as write_file().
void write_rates(const std::filesystem::path& folder, const std::vector<RatePoint>& points);

}  // namespace tpu::training
