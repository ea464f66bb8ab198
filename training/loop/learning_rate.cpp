// Nothing but additions, multiplications and divisions of f64: see numbers/elementary.hpp.
#include "loop/learning_rate.hpp"

#include <algorithm>

#include "numbers/elementary.hpp"

namespace tpu::training {
namespace {

// From `a` at 0 to `b` at 1 along half a wave of the cosine.
double wave(double a, double b, double t) { return b + (a - b) * (1.0 + cos_pi(t)) / 2.0; }

double part(int64_t done, int64_t all) {
  return all <= 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(all);
}

}  // namespace

double learning_rate(const LearningRateConfig& config, int64_t step, int64_t steps,
                     uint32_t cores) {
  const bool cycle = config.schedule == Schedule::kOneCycle;
  const double factor = config.scale_with_cores ? cores : 1.0;
  steps = config.steps > 0 ? config.steps : steps;
  step = std::min(step, steps - 1);
  const int64_t warmup = cycle && config.warmup_steps == 0 ? steps / 10 * 3 + steps % 10 * 3 / 10
                                                           : config.warmup_steps;
  if (step < warmup) {
    const double t = part(step + 1, warmup);
    return factor * (cycle ? wave(config.start, config.value, t)
                           : config.start + (config.value - config.start) * t);
  }
  const double t = part(step - warmup, steps - 1 - warmup);
  switch (config.schedule) {
    case Schedule::kConstant:
      return factor * config.value;
    case Schedule::kLinear:
      return factor * (config.value + (config.end - config.value) * t);
    case Schedule::kCosine:
    case Schedule::kOneCycle:
      break;
  }
  return factor * wave(config.value, config.end, t);
}

}  // namespace tpu::training
