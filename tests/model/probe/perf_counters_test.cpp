// The counters of a core: what a stimulus on its probe adds up to, with nobody listening.
#include "probe/perf_counters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "probe/core_probe.hpp"

namespace tpu::model {
namespace {

namespace perf = spec::perf;

class PerfCountersTest : public ::testing::Test {
 protected:
  void begin(uint64_t at) {
    probe.program_begin(at, [] { return ProgramEvent{}; });
  }
  void end(uint64_t at, bool complete = true) {
    probe.program_end(at, complete, [] { return ProgramEvent{}; });
  }
  void start(spec::Queue queue, uint64_t at) {
    probe.start(static_cast<uint32_t>(queue), at, [] { return StartEvent{}; });
  }
  void done(spec::Queue queue, uint64_t at, bool worked = true) {
    probe.done(static_cast<uint32_t>(queue), at, worked, [] { return DoneEvent{}; });
  }
  uint64_t value(uint32_t counter, uint64_t at) const { return probe.counters().at(at)[counter]; }

  ProbeSet set;
  CoreProbe probe{set, 0};
};

// Two commands of one queue overlap with one of another: busy cycles count once a queue, stalls
// are where no queue is busy.
TEST_F(PerfCountersTest, BusyAndStallCycles) {
  begin(100);
  start(spec::Queue::kDmaIn, 110);
  start(spec::Queue::kDmaIn, 115);
  start(spec::Queue::kVpu, 120);
  done(spec::Queue::kDmaIn, 130);
  done(spec::Queue::kDmaIn, 140);
  done(spec::Queue::kVpu, 160);
  EXPECT_EQ(value(perf::kRunCycles, 180), 80u);
  EXPECT_EQ(value(perf::kStallCycles, 180), 30u);
  end(200);
  EXPECT_EQ(value(perf::kDmaInBusyCycles, 300), 30u);
  EXPECT_EQ(value(perf::kVpuBusyCycles, 300), 40u);
  EXPECT_EQ(value(perf::kRunCycles, 300), 100u);
  EXPECT_EQ(value(perf::kStallCycles, 300), 50u);
  EXPECT_EQ(value(perf::kIdleCycles, 300), 100u);
  EXPECT_EQ(value(perf::kCommands, 300), 3u);
  EXPECT_EQ(value(perf::kMxu0Commands + static_cast<uint32_t>(spec::Queue::kDmaIn), 300), 2u);
  EXPECT_EQ(value(perf::kPrograms, 300), 1u);
}

TEST_F(PerfCountersTest, ACommandInFlightCountsAsBusyAtOnce) {
  begin(0);
  start(spec::Queue::kVpu, 10);
  EXPECT_EQ(value(perf::kStallCycles, 50), 10u);
  EXPECT_EQ(value(perf::kVpuBusyCycles, 50), 0u);  // counted when the queue is idle again
}

TEST_F(PerfCountersTest, NothingIsIdleBeforeTheFirstProgram) {
  EXPECT_EQ(value(perf::kCycles, 500), 500u);
  EXPECT_EQ(value(perf::kIdleCycles, 500), 0u);
}

TEST_F(PerfCountersTest, TheTimeBetweenProgramsIsIdle) {
  begin(100);
  end(150);
  EXPECT_EQ(value(perf::kIdleCycles, 180), 30u);
  begin(200);
  EXPECT_EQ(value(perf::kIdleCycles, 220), 50u);
  end(230);
  EXPECT_EQ(value(perf::kIdleCycles, 300), 120u);
}

TEST_F(PerfCountersTest, BytesFlopsAndStalls) {
  probe.flow(64, 0, 0, 0, [] { return FlowEvent{}; });
  probe.flow(0, 32, 16, 0, [] { return FlowEvent{}; });
  probe.received(8);
  probe.matmul(1000);
  probe.instruction([] { return InstructionEvent{}; });
  probe.wait(0, [] { return WaitEvent{.begin = true}; });
  probe.wait(25, [] { return WaitEvent{.begin = false}; });
  EXPECT_EQ(value(perf::kHbmReadBytes, 0), 64u);
  EXPECT_EQ(value(perf::kHbmWriteBytes, 0), 32u);
  EXPECT_EQ(value(perf::kIciSentBytes, 0), 16u);
  EXPECT_EQ(value(perf::kIciReceivedBytes, 0), 8u);
  EXPECT_EQ(value(perf::kMxuFlops, 0), 1000u);
  EXPECT_EQ(value(perf::kInstructions, 0), 1u);
  EXPECT_EQ(value(perf::kIssueStallCycles, 0), 25u);
}

// Each cycle belongs to the foremost of what goes on, so that all kinds sum to the time.
TEST_F(PerfCountersTest, EachCycleHasOneCause) {
  probe.upload(10, 1);
  probe.upload(20, 1);
  probe.upload(30, -1);
  probe.upload(50, -1);  // input: 10 to 50
  begin(60);
  probe.upload(60, 1);  // behind a program: hidden
  start(spec::Queue::kDmaIn, 70);
  start(spec::Queue::kDmaRemote, 80);
  start(spec::Queue::kMxu3, 90);
  start(spec::Queue::kVpu, 95);
  done(spec::Queue::kMxu3, 100);
  done(spec::Queue::kVpu, 120);
  done(spec::Queue::kDmaIn, 130);
  done(spec::Queue::kDmaRemote, 140);
  end(145);
  const CoreTimes::Values times = probe.counters().times(150);
  EXPECT_THAT(times, ::testing::ElementsAre(30u, 10u + 20u, 10u, 10u + 5u, 40u + 5u, 10u + 10u));
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), uint64_t{0}), 150u);
}

// Nops and own signals are none: the watchdog would never bark at an endless loop of them.
TEST_F(PerfCountersTest, ProgressIsWorkAndWhatPeersSend) {
  begin(0);
  start(spec::Queue::kVpu, 1);
  done(spec::Queue::kVpu, 2, false);
  probe.signal([] { return SignalEvent{}; });
  EXPECT_EQ(probe.counters().progress(), 0u);
  start(spec::Queue::kVpu, 3);
  done(spec::Queue::kVpu, 4);
  probe.signal_received();
  EXPECT_EQ(probe.counters().progress(), 2u);
  end(5, false);
  EXPECT_EQ(probe.counters().progress(), 2u);
  EXPECT_EQ(value(perf::kPrograms, 5), 0u);
}

}  // namespace
}  // namespace tpu::model
