// Which launches are told of, and when; the rate of their loops; the line that people read.
#include "src/pump/long_launches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exe/executable.hpp"
#include "tpu/transport.hpp"

namespace tpu::driver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Loops = std::vector<spec::LoopPlace>;

// Of a time of 60 s: ticks of a second.
class LongLaunchesTest : public ::testing::Test {
 protected:
  // Of so many seconds with this launch on device 1: those after which it is to be told of.
  std::vector<int> told(uint32_t launch, uint64_t steps, int count) {
    std::vector<int> found;
    for (int i = 0; i < count; ++i) {
      EXPECT_FALSE(launches_.spend(milliseconds(999)));
      EXPECT_TRUE(launches_.spend(milliseconds(1)));
      ++now_;
      launches_.look(0, 0, 0, 1, cycle());
      if (launches_.look(1, launch, steps, 1, cycle()) && launches_.may_tell()) {
        launches_.tell(1, {}, cycle());
        found.push_back(now_);
      }
    }
    return found;
  }
  uint64_t cycle() const { return static_cast<uint64_t>(now_) * 1000; }

  LongLaunches launches_{60, 2};
  int now_ = 0;
};

TEST_F(LongLaunchesTest, OneThatEndsNoStepIsToldOfOnceAMinute) {
  EXPECT_EQ(launches_.slice(), seconds(1));
  EXPECT_THAT(told(0, 0, 500), ::testing::IsEmpty()) << "nothing is in flight";
  EXPECT_THAT(told(5, 7, 130), ::testing::ElementsAre(561, 621));
  EXPECT_THAT(told(5, 8, 59), ::testing::IsEmpty()) << "it has ended a step";
  EXPECT_THAT(told(5, 9, 60), ::testing::IsEmpty());
  EXPECT_THAT(told(5, 9, 1), ::testing::ElementsAre(750));
  EXPECT_THAT(told(6, 9, 60), ::testing::IsEmpty()) << "another launch";
}

// Of a board in other processes on a busy host.
TEST_F(LongLaunchesTest, TheBoardRunsLongerThanLooksTake) {
  ASSERT_TRUE(launches_.spend(seconds(1)));
  launches_.note_cost(milliseconds(3));
  EXPECT_EQ(launches_.slice(), seconds(1));
  launches_.note_cost(seconds(2));
  EXPECT_EQ(launches_.slice(), seconds(40));
  EXPECT_FALSE(launches_.spend(seconds(39)));
  EXPECT_TRUE(launches_.spend(seconds(1)));
  launches_.note_cost(milliseconds(3));
  EXPECT_EQ(launches_.slice(), seconds(1)) << "of the last look alone";
}

TEST_F(LongLaunchesTest, OneIsToldOfAtATime) {
  EXPECT_THAT(told(5, 0, 61), ::testing::ElementsAre(61));
  EXPECT_FALSE(launches_.may_tell()) << "another one in the same minute";
}

TEST_F(LongLaunchesTest, WhatIsNotReportedStaysDueAndAllCoresOfALaunchAreReportedTogether) {
  LongLaunches launches(60, 3);
  const auto look = [&](size_t device, uint32_t launch) {
    return launches.look(device, launch, 0, 1, 0);
  };
  const auto look_at_all = [&] { return std::vector<bool>{look(0, 5), look(1, 6), look(2, 5)}; };
  using Due = std::vector<bool>;
  EXPECT_EQ(look_at_all(), Due({false, false, false}));
  EXPECT_TRUE(launches.spend(seconds(60)));
  EXPECT_EQ(look_at_all(), Due({true, true, true}));
  launches.tell(0, {}, 0);
  EXPECT_TRUE(launches.spend(seconds(1)));
  EXPECT_EQ(look_at_all(), Due({false, true, false}));
  EXPECT_EQ(launches.silent(0), seconds(1));
  EXPECT_EQ(launches.silent(1), seconds(61));
  EXPECT_EQ(launches.silent(2), seconds(1));
}

// A command that takes long on the host keeps the board from coming back at its ticks.
TEST_F(LongLaunchesTest, TimeCountsAndNotTicks) {
  EXPECT_FALSE(launches_.look(0, 5, 0, 1, 0));
  EXPECT_TRUE(launches_.spend(seconds(59)));
  EXPECT_FALSE(launches_.look(0, 5, 0, 1, 10));
  EXPECT_TRUE(launches_.spend(seconds(30)));
  EXPECT_TRUE(launches_.look(0, 5, 0, 1, 20));
  const LongLaunches::News news = launches_.tell(0, {}, 20);
  EXPECT_EQ(news.host_seconds, 89);
  EXPECT_EQ(news.cycles, 20U);
}

TEST_F(LongLaunchesTest, StepsThatNobodySeesHaveTheirTimeTogether) {
  EXPECT_FALSE(launches_.look(0, 5, 0, 3, 0));
  EXPECT_TRUE(launches_.spend(seconds(179)));
  EXPECT_FALSE(launches_.look(0, 5, 0, 3, 0));
  EXPECT_TRUE(launches_.spend(seconds(1)));
  EXPECT_TRUE(launches_.look(0, 5, 0, 3, 0));
}

TEST_F(LongLaunchesTest, TheRateIsThatOfTheOutermostLoopThatGoesOn) {
  const auto after = [&](const Loops& loops) {
    told(5, 0, 10);
    return launches_.tell(1, loops, cycle());
  };
  EXPECT_EQ(after({{3, 2}, {4, 100}}).loop, std::nullopt) << "it is told of for the first time";
  LongLaunches::News news = after({{3, 2}, {4, 150}});
  EXPECT_EQ(news.loop, 1U);
  EXPECT_DOUBLE_EQ(news.iterations_per_second, 5);
  news = after({{3, 22}, {4, 10}});
  EXPECT_EQ(news.loop, 0U);
  EXPECT_DOUBLE_EQ(news.iterations_per_second, 2);
  EXPECT_EQ(after({{3, 22}, {4, 10}}).loop, std::nullopt) << "it stands";
  EXPECT_EQ(after({{9, 30}}).loop, std::nullopt) << "another loop";
  EXPECT_EQ(after({{9, 3}}).loop, std::nullopt) << "the same loop, begun again";
  EXPECT_EQ(after({}).loop, std::nullopt);
}

TEST(LongLaunches, WithoutATimeNothingIsAskedFor) {
  LongLaunches none(0, 1);
  EXPECT_EQ(none.slice().count(), 0);
  EXPECT_FALSE(none.spend(std::chrono::hours(24)));
  for (const double time : {1e-12, 1e9, 1e300}) {
    EXPECT_GT(LongLaunches(time, 1).slice().count(), 0) << time;
  }
}

class LongLaunchText : public ::testing::Test {
 protected:
  LongLaunchText() {
    for (const auto& [name, line] : {std::pair("while", 10), std::pair("add", 12)}) {
      auto op = std::make_unique<exe::OpInfoT>();
      op->name = name;
      op->file = "model.py";
      op->line = static_cast<uint32_t>(line);
      exe_.ops.push_back(std::move(op));
    }
    exe_.image.resize(64 + 800);
    const uint32_t code_bytes = 800;
    std::memcpy(exe_.image.data() + 12, &code_bytes, sizeof code_bytes);
  }
  std::string text(const ProgramPlace* place, const LongLaunches::News& news,
                   uint32_t steps = 1) const {
    return long_launch_text("launch of f (id 3)", exe_, steps, 2, place, news, 1e9);
  }

  exe::ExecutableT exe_;
};

TEST_F(LongLaunchText, NamesOperationLoopsAndBoardTime) {
  const ProgramPlace place{
      .running = true, .steps = 0, .step = 0, .pc = 25, .op_id = 1, .loops = {{0, 12}, {0, 345}}};
  EXPECT_EQ(
      text(&place,
           {.host_seconds = 120, .cycles = 1'500'000, .loop = 1, .iterations_per_second = 3.25}),
      "launch of f (id 3) has run for 2 min 00 s (0.0015 s of simulated time): TPU:2 is at add "
      "at model.py:12, iteration 12 of while at model.py:10, iteration 345 of while at "
      "model.py:10 (3.2 iterations/s)");
}

TEST_F(LongLaunchText, WithoutALoopSaysHowFarItIs) {
  const ProgramPlace place{
      .running = true, .steps = 0, .step = 4, .pc = 25, .op_id = 7, .loops = {}};
  EXPECT_THAT(text(&place, {.host_seconds = 60}, 10),
              HasSubstr("step 5 of 10, TPU:2 is at op 7 (25 % of the code)"));
  EXPECT_THAT(text(&place, {.host_seconds = 60}), Not(HasSubstr("step")));
  EXPECT_THAT(text(nullptr, {.host_seconds = 60}), HasSubstr("no core has begun it"));
}

}  // namespace
}  // namespace tpu::driver
