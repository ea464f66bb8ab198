// Learning rates by step: constant, linear, cosine and one-cycle, each behind a linear warm-up.
// The same bits on every host.
#pragma once

#include <cstdint>
#include <string>

namespace tpu::training {

enum class Schedule : uint8_t { kConstant, kLinear, kCosine, kOneCycle };

struct LearningRateConfig {
  Schedule schedule = Schedule::kConstant;
  double value = 0;               ///< behind the warm-up; the highest
  int64_t warmup_steps = 0;       ///< one-cycle: 0 is three tenths of all steps
  double start = 0;               ///< from which the warm-up rises
  double end = 0;                 ///< of the last step; not for kConstant
  int64_t steps = 0;              ///< of the whole schedule; 0: of all epochs
  bool scale_with_cores = false;  ///< all values times the number of cores
  /// State leaf that holds the rate, by number or name, set before each step; empty: the program
  /// takes it as an argument.
  std::string leaf = {};
};

/// Of step `step` (from 0 on) of `steps`; of later ones that of the last.
double learning_rate(const LearningRateConfig& config, int64_t step, int64_t steps, uint32_t cores);

}  // namespace tpu::training
