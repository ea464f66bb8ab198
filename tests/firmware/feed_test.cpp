// The firmware's portable part on the host: batches and outputs of launches of many steps, at the
// limits of the feed rings.
#include <gtest/gtest.h>

#include "firmware_fixture.hpp"
#include "tpu/spec/gsync_regs.h"

namespace tpu::test {
namespace {

class Feeds : public FirmwareTest {
 protected:
  static constexpr uint32_t kLaunch = 9;

  void SetUp() override {
    open();
    load_program();
  }
  uint32_t launch(uint32_t steps, uint32_t flags) {
    return host_.put(host_.launch(5, 3, kLaunch, steps, kAlone), TPU_OP_LAUNCH, flags);
  }
  uint32_t batch(uint64_t src = 0x40000) {
    return host_.put(upload(src, 0, 16), TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  }
  uint32_t output() {
    tpu_command_copy_t down{};
    down.dst = 0x50000;
    down.bytes = 16;
    down.kind = TPU_COPY_D2H;
    return host_.put(down, TPU_OP_COPY, TPU_CMD_FLAG_OUTFEED);
  }
};

TEST_F(Feeds, BatchesWithoutALaunchFillTheRingAndNoMore) {
  for (uint32_t i = 0; i < TPU_INFEED_DEPTH + 2; ++i) {
    batch();
  }
  EXPECT_EQ(run().size(), TPU_INFEED_DEPTH);
  EXPECT_EQ(device_.infeed.full, TPU_INFEED_DEPTH);
}

TEST_F(Feeds, StepsWhoseOutputsAreNotFetchedStopWhenTheRingIsFull) {
  launch(TPU_INFEED_DEPTH + 3, TPU_CMD_FLAG_OUTFEED);
  run();
  EXPECT_EQ(device_.programs_started, TPU_INFEED_DEPTH);
  output();
  EXPECT_EQ(run().size(), 1U);
  EXPECT_EQ(device_.programs_started, TPU_INFEED_DEPTH + 1);
}

TEST_F(Feeds, OutputOfNoStepIsNotFetched) {
  output();
  EXPECT_TRUE(run().empty());
}

// The block's counters say what the watchdog and the host's monitor see.
TEST_F(Feeds, CountersOfTheBlockFollowBatchesAndSteps) {
  launch(3, TPU_CMD_FLAG_INFEED);
  run();
  EXPECT_EQ(device_.infeed.want, 1U);
  batch();
  host_.doorbell();
  dispatch();
  while (!device_.barrier_waiting) {
    ASSERT_TRUE(device_.settle_one());
    dispatch();
  }
  EXPECT_EQ(device_.infeed.full, 1U);
  EXPECT_EQ(device_.infeed.want, 0U);  // a step that has its batch is under the watchdog
  EXPECT_EQ(device_.infeed.free, 0U);
  settle();
  EXPECT_EQ(device_.infeed.free, 1U);
  EXPECT_EQ(device_.infeed.want, 2U);
}

TEST_F(Feeds, AbortWhileAStepHasNoBatchWaitsForNoBatch) {
  launch(3, TPU_CMD_FLAG_INFEED);
  batch();
  run();
  ASSERT_EQ(device_.infeed.want, 2U);
  device_.abort(kLaunch, 0, TPU_GSYNC_CODE_FAULT);
  settle();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  EXPECT_EQ(device_.infeed.want, 0U);
}

TEST_F(Feeds, CountsBeginAgainWithEachResume) {
  launch(3, TPU_CMD_FLAG_INFEED | TPU_CMD_FLAG_OUTFEED);
  batch();
  run();
  device_.abort(kLaunch, 0, TPU_GSYNC_CODE_HOST);
  settle();
  taken();
  ASSERT_EQ(device_.infeed.full, 1U);
  ASSERT_EQ(device_.infeed.free, 1U);
  host_.resume();
  dispatch();
  EXPECT_EQ(device_.infeed.full, 0U);
  EXPECT_EQ(device_.infeed.free, 0U);
  output();  // the output of the aborted launch is no more
  EXPECT_TRUE(run().empty());
}

TEST_F(Feeds, BatchThatDidNotArriveDoesNotCount) {
  batch(1ULL << 40);
  EXPECT_EQ(run().begin()->second.status, TPU_STATUS_HOST_ADDR);
  EXPECT_EQ(fw.infeed_full, 0U);
  EXPECT_EQ(device_.infeed.full, 0U);
}

TEST_F(Feeds, EachStepsOutputIsAnnouncedByAnInterruptIfAsked) {
  for (const bool asked : {false, true}) {
    const unsigned before = device_.completion_msis;
    launch(2, TPU_CMD_FLAG_OUTFEED | (asked ? TPU_CMD_FLAG_INTERRUPT : 0U));
    run();
    EXPECT_EQ(device_.completion_msis - before, asked ? 2U : 0U);
    output();
    output();
    run();
  }
}

}  // namespace
}  // namespace tpu::test
