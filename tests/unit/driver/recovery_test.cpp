// Recovery after faults, stalls and deaths, step by step; cores and firmware are fake.
#include "src/recovery/recovery.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/residency/program.hpp"
#include "tests/unit/driver/fake_driver.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

class RecoveryTest : public testing::Test, protected test::FakeDriver {
 protected:
  std::shared_ptr<Operation> gang() {
    auto op = operations.begin("launch of add");
    op->program = std::make_shared<LoadedProgram>(std::make_shared<exe::ExecutableT>(),
                                                  std::vector<int>{0, 1});
    for (const int device : {0, 1}) {
      auto command = std::make_shared<Command>();
      command->device = device;
      command->opcode = TPU_OP_LAUNCH;
      op->commands.push_back(command);
    }
    launcher.give_id(*op);
    operations.submit_gang(op);
    return op;
  }
  std::shared_ptr<Operation> fill(int device) {
    auto op = operations.begin("fill");
    auto command = std::make_shared<Command>();
    command->device = device;
    command->opcode = TPU_OP_FILL;
    operations.add(op, command);
    operations.seal(op);
    return op;
  }
  // The oldest command of a device has ended so, and holds its core.
  void fail(int device, uint16_t status) {
    cores.devices[device].held = true;
    report(device, status);
  }
};

TEST_F(RecoveryTest, WhatWasFlushedIsSentAgainInTheOldOrderWithTheNextEpoch) {
  const auto first = fill(0);
  const auto launch = gang();
  const auto second = fill(0);
  const uint32_t id = launch->launch_id;
  fail(0, TPU_STATUS_HBM_RANGE);
  EXPECT_TRUE(first->event->failed());
  report(0, TPU_STATUS_FLUSHED);
  report(0, TPU_STATUS_FLUSHED);
  fail(1, TPU_STATUS_FLUSHED);
  recovery.recover();
  EXPECT_EQ(broken, nullptr);
  EXPECT_EQ(recovery.recoveries(), 1u);
  EXPECT_FALSE(cores.devices.any_held());
  EXPECT_EQ(cores.devices[0].ring.epoch(), 1u);
  EXPECT_GT(launch->launch_id, id) << "the board remembers aborted gangs";
  ASSERT_EQ(cores.devices[0].ring.open(), 2u);
  EXPECT_EQ(cores.oldest(0)->op, launch);
  report(0);
  EXPECT_EQ(cores.oldest(0)->op, second);
  report(0);
  report(1);
  EXPECT_FALSE(launch->event->failed());
  EXPECT_FALSE(second->event->open());
  recovery.recover();
  EXPECT_EQ(recovery.recoveries(), 1u) << "there is nothing to recover";
}

// Else a read of its results would come back with what was there before.
TEST_F(RecoveryTest, WhatWasFlushedBehindALaunchWaitsForAllOfItsCores) {
  const auto before = gang();
  const auto launch = gang();
  const auto behind = fill(0);
  report(0);
  fail(0, TPU_STATUS_FLUSHED);
  report(0, TPU_STATUS_FLUSHED);
  recovery.recover();  // core 1 has another launch to end before
  report(1);
  recovery.recover();
  EXPECT_EQ(recovery.recoveries(), 0u);
  EXPECT_TRUE(cores.devices[0].held);
  fail(1, TPU_STATUS_FLUSHED);
  recovery.recover();
  EXPECT_EQ(recovery.recoveries(), 1u);
  EXPECT_FALSE(before->event->failed());
  ASSERT_EQ(cores.devices[0].ring.open(), 2u);
  EXPECT_EQ(cores.oldest(0)->op, launch);
  report(0);
  EXPECT_EQ(cores.oldest(0)->op, behind);
}

TEST_F(RecoveryTest, ALaunchThatIsFlushedAgainAndAgainFails) {
  const auto launch = gang();
  for (int i = 0; i < 5; ++i) {
    ASSERT_FALSE(launch->finished) << i;
    fail(0, TPU_STATUS_FLUSHED);
    fail(1, TPU_STATUS_FLUSHED);
    recovery.recover();
  }
  ASSERT_TRUE(launch->event->failed());
  EXPECT_EQ(launch->event->error->message(), "launch of add: flushed again and again");
}

TEST_F(RecoveryTest, AFaultOfTheLaunchIsToldByItsRecord) {
  const auto launch = gang();
  wire->record.code = TPU_FAULT_WATCHDOG;
  wire->record.launch_id = launch->launch_id;
  wire->record.op_id = TPU_OP_NONE;
  fail(0, TPU_STATUS_FAULT);
  fail(1, TPU_STATUS_FAULT);
  recovery.recover();
  ASSERT_TRUE(launch->event->failed());
  EXPECT_EQ(launch->event->error->code(), ErrorCode::kDeviceFault);
  EXPECT_EQ(launch->event->error->place().device, 1);
  EXPECT_EQ(hangs, std::vector<std::string>{"watchdog"});
  EXPECT_NE(launch->event->error->message().find("a waits for b"), std::string::npos);
}

TEST_F(RecoveryTest, AVerdictOfTheDriverIsTheErrorOfTheLaunch) {
  const auto launch = gang();
  launch->verdict = std::make_shared<Error>(ErrorCode::kTimeout, "ended no step");
  wire->record.code = TPU_FAULT_HOST_ABORT;
  wire->record.launch_id = launch->launch_id;
  fail(0, TPU_STATUS_FAULT);
  fail(1, TPU_STATUS_FAULT);
  recovery.recover();
  EXPECT_EQ(launch->event->error->message(), "ended no step");
}

TEST_F(RecoveryTest, ACoreThatDoesNotResumeBreaksTheBoard) {
  fill(0);
  fail(0, TPU_STATUS_HBM_RANGE);
  cores.devices[0].ring.begin_epoch(5);
  wire->epoch.clear();
  wire->epoch.resize(2, 0);
  class Deaf : public test::FaultWire {
   public:
    void write32(int, int, uint64_t, uint32_t) override {}
  } deaf;
  cores.registers.connect(&deaf);
  recovery.recover();
  ASSERT_NE(broken, nullptr);
  EXPECT_EQ(broken->message(), "the core does not resume after a fault");
}

TEST_F(RecoveryTest, AStallIsAnsweredInThreeSteps) {
  const auto launch = gang();
  cores.registers.send();
  wire->writes.clear();
  recovery.stalled();
  EXPECT_EQ(recovery.repeated_doorbells(), 2u);
  EXPECT_EQ(wire->written(1, core_page::kCmdTail), std::vector<uint32_t>{1});
  recovery.stalled();
  EXPECT_EQ(hangs, std::vector<std::string>{"deadlock"});
  EXPECT_EQ(launch->stall_text, "a waits for b\n");
  EXPECT_EQ(wire->written(0, core_page::kAbort), std::vector<uint32_t>{launch->launch_id});
  EXPECT_EQ(broken, nullptr);
  recovery.stalled();
  ASSERT_NE(broken, nullptr);
  EXPECT_EQ(broken->code(), ErrorCode::kTimeout);
  EXPECT_NE(broken->message().find("a waits for b"), std::string::npos);
}

TEST_F(RecoveryTest, AChipThatHasGoneBreaksTheBoardInAStall) {
  gang();
  lost_chip = std::make_shared<Error>(ErrorCode::kUnavailable, "chip 0 has gone");
  recovery.stalled();
  EXPECT_EQ(broken, nullptr);
  recovery.stalled();
  EXPECT_EQ(broken, lost_chip);
}

TEST_F(RecoveryTest, ProgressBeginsTheStepsAnew) {
  gang();
  recovery.stalled();
  recovery.note_progress();
  recovery.stalled();
  EXPECT_TRUE(hangs.empty());
  EXPECT_EQ(recovery.repeated_doorbells(), 4u);
}

TEST_F(RecoveryTest, ACompletionThatIsMissingBreaksTheBoardInAStall) {
  fill(0);
  wire->completions[0] = 1;
  recovery.stalled();
  recovery.stalled();
  ASSERT_NE(broken, nullptr);
  EXPECT_NE(broken->message().find("it is missing, although 1 were written"), std::string::npos)
      << broken->message();
}

}  // namespace
}  // namespace tpu::driver
