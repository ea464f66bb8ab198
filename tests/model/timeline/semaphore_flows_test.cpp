// Who let whom start.
#include "timeline/semaphore_flows.hpp"

#include <gtest/gtest.h>

namespace tpu::model {
namespace {

TEST(SemaphoreFlows, TheSignalThatReachesTheThresholdIsTheCause) {
  SemaphoreFlows flows(2);
  flows.signal(1, 5, 1, 11);
  flows.signal(1, 5, 1, 12);
  flows.signal(1, 5, 1, 13);
  EXPECT_EQ(flows.take(0, 5, 1, true), 0U);  // another core's
  EXPECT_EQ(flows.take(1, 4, 1, true), 0U);  // another semaphore
  EXPECT_EQ(flows.take(1, 5, 2, true), 12U);
  EXPECT_EQ(flows.take(1, 5, 1, true), 13U);
  EXPECT_EQ(flows.take(1, 5, 1, true), 0U);
}

TEST(SemaphoreFlows, WhoOnlyLooksLeavesTheCountAndAFlowEndsOnce) {
  SemaphoreFlows flows(1);
  flows.signal(0, 0, 3, 7);
  EXPECT_EQ(flows.take(0, 0, 2, false), 7U);
  EXPECT_EQ(flows.take(0, 0, 2, true), 0U);
  flows.signal(0, 0, 1, 8);
  EXPECT_EQ(flows.take(0, 0, 2, true), 8U);  // one was left of the first
}

TEST(SemaphoreFlows, KeepsCountOfWhatIsNeverTaken) {
  SemaphoreFlows flows(1);
  for (uint64_t n = 1; n <= 1000; ++n) {
    flows.signal(0, 0, 1, n);
  }
  EXPECT_EQ(flows.take(0, 0, 1000, true), 1000U);
  flows.signal(0, 0, 1, 2000);
  flows.clear(0);
  EXPECT_EQ(flows.take(0, 0, 1, true), 0U);
}

}  // namespace
}  // namespace tpu::model
