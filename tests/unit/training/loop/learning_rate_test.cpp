// Learning rates by step, and the elementary functions under them against the host's library.
#include "loop/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "numbers/elementary.hpp"

namespace tpu::training {
namespace {

double at(const LearningRateConfig& config, int64_t step, int64_t steps = 11, uint32_t cores = 8) {
  return learning_rate(config, step, steps, cores);
}

TEST(LearningRate, ConstantBehindALinearWarmUp) {
  const LearningRateConfig rate{.value = 0.5, .warmup_steps = 5, .start = 0.0};
  EXPECT_DOUBLE_EQ(at(rate, 0), 0.1);
  EXPECT_DOUBLE_EQ(at(rate, 3), 0.4);
  EXPECT_DOUBLE_EQ(at(rate, 4), 0.5);
  EXPECT_DOUBLE_EQ(at(rate, 1000), 0.5);
}

TEST(LearningRate, LinearAndCosineEndAtTheLastStep) {
  LearningRateConfig rate{.schedule = Schedule::kLinear, .value = 1.0, .end = 0.2};
  EXPECT_DOUBLE_EQ(at(rate, 0), 1.0);
  EXPECT_DOUBLE_EQ(at(rate, 5), 0.6);
  EXPECT_DOUBLE_EQ(at(rate, 10), 0.2);
  EXPECT_DOUBLE_EQ(at(rate, 11), 0.2);  // behind the end it stays
  rate.schedule = Schedule::kCosine;
  EXPECT_DOUBLE_EQ(at(rate, 0), 1.0);
  EXPECT_NEAR(at(rate, 5), 0.6, 1e-15);
  EXPECT_NEAR(at(rate, 2), 0.2 + 0.4 * (1 + std::cos(std::numbers::pi * 0.2)), 1e-15);
  EXPECT_DOUBLE_EQ(at(rate, 10), 0.2);
  rate.warmup_steps = 2;
  EXPECT_DOUBLE_EQ(at(rate, 1), 1.0);
  EXPECT_DOUBLE_EQ(at(rate, 2), 1.0);
  EXPECT_DOUBLE_EQ(at(rate, 10), 0.2);
  rate.steps = 21;  // longer than the run
  EXPECT_GT(at(rate, 10), 0.5);
}

TEST(LearningRate, OneCycleRisesAndFalls) {
  const LearningRateConfig rate{
      .schedule = Schedule::kOneCycle, .value = 1.0, .start = 0.04, .end = 1e-5};
  double before = 0.04;
  for (int64_t step = 0; step < 30; ++step) {
    const double now = at(rate, step, 100);
    EXPECT_GT(now, before) << step;
    before = now;
  }
  EXPECT_DOUBLE_EQ(before, 1.0);
  for (int64_t step = 31; step < 100; ++step) {
    const double now = at(rate, step, 100);
    EXPECT_LT(now, before) << step;
    before = now;
  }
  EXPECT_DOUBLE_EQ(before, 1e-5);
}

TEST(LearningRate, ScalesWithTheCores) {
  const LearningRateConfig rate{.value = 0.25, .scale_with_cores = true};
  EXPECT_DOUBLE_EQ(at(rate, 3, 10, 1), 0.25);
  EXPECT_DOUBLE_EQ(at(rate, 3, 10, 8), 2.0);
}

// A schedule of one step, and a warm-up longer than the run, divide by nothing.
TEST(LearningRate, ShortRuns) {
  LearningRateConfig rate{.schedule = Schedule::kCosine, .value = 1.0, .end = 0.5};
  EXPECT_DOUBLE_EQ(at(rate, 0, 1), 0.5);
  rate.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(at(rate, 1, 2), 0.5);
}

// The bound is the rounding of a sum of at most 11 terms below one.
TEST(Elementary, CosineAndRoot) {
  for (int i = 0; i <= 1000; ++i) {
    EXPECT_NEAR(cos_pi(i / 1000.0), std::cos(std::numbers::pi * (i / 1000.0)), 1e-15) << i;
  }
  EXPECT_EQ(cos_pi(0.0), 1.0);
  EXPECT_EQ(cos_pi(0.5), 0.0);
  EXPECT_EQ(cos_pi(1.0), -1.0);
  EXPECT_EQ(root(1.0, 7), 1.0);
  EXPECT_NEAR(root(1024.0, 10), 2.0, 1e-15);
  EXPECT_NEAR(root(1e7, 99), std::pow(1e7, 1.0 / 99), 1e-14);
}

}  // namespace
}  // namespace tpu::training
