// The values that a step gives, by name.
#include "cli/train/seen_progress.hpp"

namespace tpu::driver {

monitor::Progress seen_from_outside(const training::Progress& at, bool has_data) {
  monitor::Progress seen;
  seen.step = at.step;
  seen.steps = at.steps;
  seen.epoch = at.epoch;
  if (has_data) {
    seen.loss = at.loss;
    for (const auto& [name, value] : at.metrics) {
      seen.values.emplace_back(name, value);
    }
  }
  if (at.learning_rate) {
    seen.values.emplace_back("learning_rate", *at.learning_rate);
  }
  return seen;
}

}  // namespace tpu::driver
