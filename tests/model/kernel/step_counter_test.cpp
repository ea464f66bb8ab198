// Steps of a board have one number each, whoever begins them and in whatever order.
#include "kernel/step_counter.hpp"

#include <gtest/gtest.h>

namespace tpu::model {
namespace {

TEST(StepCounter, CountsLaunchesTogether) {
  StepCounter steps;
  uint64_t number = 0;
  for (uint32_t launch = 100; launch < 105; ++launch) {
    EXPECT_EQ(steps.begin(0, spec::CoreSet(1), launch, 0), number++);
    EXPECT_EQ(steps.begin(0, spec::CoreSet(1), launch, 1), number++);
  }
  EXPECT_EQ(steps.begun(), 10U);
}

TEST(StepCounter, CoresOfAGangShareANumber) {
  StepCounter steps;
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(steps.begin(3, spec::CoreSet(0b1011), 1, static_cast<uint32_t>(step)), step);
    EXPECT_EQ(steps.begin(0, spec::CoreSet(0b1011), 1, static_cast<uint32_t>(step)), step);
    EXPECT_EQ(steps.begin(1, spec::CoreSet(0b1011), 1, static_cast<uint32_t>(step)), step);
  }
  EXPECT_EQ(steps.begin(2, spec::CoreSet(0b0100), 2, 0), 3U);  // another core's program meanwhile
}

// A gang on two boards, behind two launches on one of them.
TEST(StepCounter, ABoardOfAPodCountsItsOwn) {
  const spec::CoreSet all(0xFFFF);
  StepCounter first(spec::CoreSet(0xFF));
  StepCounter second(spec::CoreSet(0xFF00));
  EXPECT_EQ(first.begin(0, spec::CoreSet(1), 1, 0), 0U);
  EXPECT_EQ(first.begin(0, spec::CoreSet(1), 2, 0), 1U);
  for (uint32_t core = 0; core < 8; ++core) {
    EXPECT_EQ(first.begin(core, all, 3, 0), 2U);
    EXPECT_EQ(second.begin(8 + core, all, 3, 0), 0U);
  }
  // All cores of each board have begun: the same names are another step.
  EXPECT_EQ(first.begin(7, all, 3, 0), 3U);
  EXPECT_EQ(second.begin(8, all, 3, 0), 1U);
}

// Core 1 never begins: the next launch of the same gang, even with the same name, is a step of its
// own for who has begun before.
TEST(StepCounter, AGangThatEndsEarlyLeavesNothingBehind) {
  StepCounter steps;
  EXPECT_EQ(steps.begin(0, spec::CoreSet(3), 7, 0), 0U);
  EXPECT_EQ(steps.begin(0, spec::CoreSet(3), 7, 0), 1U);
  for (uint32_t launch = 8; launch < 1000; ++launch) {
    EXPECT_EQ(steps.begin(0, spec::CoreSet(3), launch, 0), launch - 6);
  }
  EXPECT_EQ(steps.begin(1, spec::CoreSet(3), 999, 0), 993U);
}

}  // namespace
}  // namespace tpu::model
