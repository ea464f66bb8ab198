// When the limit of a launch is over: ticks of the board's running time, steps, launches.
#include "src/pump/launch_clock.hpp"

#include <gtest/gtest.h>

namespace tpu::driver {
namespace {

using std::chrono::milliseconds;

TEST(LaunchClock, CountsOnlyTheTimeThatTheBoardRuns) {
  LaunchClock clock(8.0, 1);  // ticks of a second
  EXPECT_EQ(clock.slice(), milliseconds(1000));
  EXPECT_FALSE(clock.spend(milliseconds(400)));
  EXPECT_EQ(clock.slice(), milliseconds(600));
  EXPECT_FALSE(clock.spend(milliseconds(599)));
  EXPECT_TRUE(clock.spend(milliseconds(1)));
  EXPECT_EQ(clock.slice(), milliseconds(1000));
  EXPECT_TRUE(clock.spend(milliseconds(5000))) << "one tick, however late the board came back";
  EXPECT_EQ(clock.slice(), milliseconds(1000));
}

TEST(LaunchClock, NoLimitAsksForNothing) {
  LaunchClock clock(0, 1);
  EXPECT_EQ(clock.slice().count(), 0);
  EXPECT_FALSE(clock.spend(std::chrono::hours(24)));
}

TEST(LaunchClock, LimitsBeyondAllBoundsStayPositive) {
  for (const double seconds : {1e-12, 1e9, 1e300}) {
    EXPECT_GT(LaunchClock(seconds, 1).slice().count(), 0) << seconds;
  }
}

TEST(LaunchClock, EightTicksOfOneLaunchWithoutAStepAreTooMany) {
  LaunchClock clock(1, 2);
  const auto looks = [&](uint32_t launch, uint64_t steps, int count) {
    int late = 0;
    for (int i = 0; i < count; ++i) {
      late += clock.look(1, launch, steps) ? 1 : 0;
    }
    return late;
  };
  EXPECT_EQ(looks(0, 0, 100), 0);  // nothing is in flight
  EXPECT_EQ(looks(5, 7, 8), 0);    // the first look only begins
  EXPECT_EQ(looks(5, 8, 8), 0);    // it has ended a step
  EXPECT_EQ(looks(6, 8, 8), 0);    // another launch
  EXPECT_FALSE(clock.look(0, 6, 0));
  EXPECT_EQ(looks(6, 8, 1), 1);
  EXPECT_EQ(looks(6, 8, 7), 0);  // and again after as long
  EXPECT_EQ(looks(6, 8, 1), 1);
}

TEST(LaunchClock, StepsThatNobodySeesHaveTheirTimeTogether) {
  LaunchClock clock(1, 1);
  EXPECT_FALSE(clock.look(0, 5, 0, 3));
  for (int i = 1; i < 3 * 8; ++i) {
    EXPECT_FALSE(clock.look(0, 5, 0, 3)) << i;
  }
  EXPECT_TRUE(clock.look(0, 5, 0, 3));
}

}  // namespace
}  // namespace tpu::driver
