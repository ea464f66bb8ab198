// The firmware's portable part on the host: faults, aborts and the drain that follows them. What a
// gang does without faults: launch_test.cpp.
#include <gtest/gtest.h>

#include "firmware_fixture.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/seq_regs.h"
#include "tpu/spec/sysctl_regs.h"

namespace tpu::test {
namespace {

class Aborts : public FirmwareTest {
 protected:
  static constexpr uint32_t kLaunch = 9;
  static constexpr uint64_t kWatchdogCycles = 10 * 1024;  // the mock board's default

  void SetUp() override {
    open();
    load_program();
  }
  // A launch stands at the barrier in front of its first step.
  void arrive(uint32_t steps = 3) {
    seq_ = host_.put(host_.launch(5, 3, kLaunch, steps, kAlone), TPU_OP_LAUNCH);
    host_.doorbell();
    dispatch();
    while (!device_.barrier_waiting) {
      ASSERT_TRUE(device_.finish_any_dma());
      dispatch();
    }
  }
  void start_program() {
    arrive();
    device_.release();
    dispatch();
    ASSERT_TRUE(device_.program_running);
  }
  void fault(uint16_t code) {
    tpu_fault_record_t what{};
    what.code = static_cast<uint8_t>(code);
    device_.fault_program(what);
    dispatch();
  }
  void abort(uint32_t code, uint32_t origin = 0) {
    device_.abort(kLaunch, origin, code);
    dispatch();
  }
  // The engines of a fault on this core stop, and its abort comes back: the gang drains.
  void drain_own_fault() {
    device_.drained();
    dispatch();
    abort(TPU_GSYNC_CODE_FAULT, MockDevice::kCore);
    ASSERT_TRUE(device_.barrier_waiting);
  }
  tpu_fault_record_t seen() {
    tpu_fault_record_t record;
    std::memcpy(&record, &device_.sys(TPU_SYSCTL_FAULT_RECORD_OFFSET), sizeof record);
    return record;
  }
  uint32_t fault_seq() { return device_.sys(TPU_SYSCTL_FAULT_SEQ_OFFSET); }
  uint32_t gang_mask() { return device_.gsync[TPU_GSYNC_MASK_OFFSET / 4]; }

  uint32_t seq_ = 0;
};

TEST_F(Aborts, FirstFaultOfALaunchIsKeptInTheDrainBarrierToo) {
  start_program();
  fault(TPU_FAULT_VMEM_RANGE);
  EXPECT_EQ(device_.records_taken, 1U);
  drain_own_fault();
  fault(TPU_FAULT_SMEM_RANGE);
  EXPECT_EQ(seen().code, TPU_FAULT_VMEM_RANGE);
  EXPECT_EQ(seen().origin, MockDevice::kCore);
  EXPECT_EQ(fault_seq(), 1U);
  EXPECT_EQ(device_.aborts_sent.size(), 1U);
}

TEST_F(Aborts, FaultOutsideOfALaunchIsRecordedAndHolds) {
  fault(TPU_FAULT_REMOTE_STRAY);
  EXPECT_EQ(seen().code, TPU_FAULT_REMOTE_STRAY);
  EXPECT_EQ(device_.seq_resets, 1U);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  EXPECT_TRUE(device_.aborts_sent.empty());
}

TEST_F(Aborts, CoreLeavesItsGangWhenItHasDrained) {
  start_program();
  fault(TPU_FAULT_VMEM_RANGE);
  drain_own_fault();
  EXPECT_EQ(gang_mask(), kAlone);
  settle();
  EXPECT_EQ(gang_mask(), 0U);
}

// The release comes between the read of the interrupt sources and the abort's handler.
TEST_F(Aborts, StepReleasedBesideAnAbortDrainsWithItsGang) {
  arrive();
  device_.abort(kLaunch, 0, TPU_GSYNC_CODE_FAULT);
  const uint32_t sources = device_.read(TPU_HART_IRQ_BASE + TPU_IRQ_TAKE_OFFSET);
  device_.release();
  fw_dispatch(sources);
  dispatch();
  EXPECT_EQ(device_.programs_started, 0U);
  EXPECT_TRUE(device_.barrier_waiting);
  EXPECT_EQ(device_.barrier_kind, TPU_GSYNC_KIND_DRAIN);
}

TEST_F(Aborts, ReleaseAndAbortInOneInterruptStartNoProgram) {
  arrive();
  device_.abort(kLaunch, 0, TPU_GSYNC_CODE_FAULT);
  device_.release();
  dispatch();
  EXPECT_EQ(device_.programs_started, 0U);
  EXPECT_EQ(device_.barrier_kind, TPU_GSYNC_KIND_DRAIN);
}

TEST_F(Aborts, ProgramThatEndsBehindTheAbortDoesNotEndTheStep) {
  start_program();
  abort(TPU_GSYNC_CODE_FAULT);
  device_.finish_program();
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_DRAIN);
  EXPECT_EQ(fw.run.step, 0U);
  settle();
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_ABORTED);
}

TEST_F(Aborts, RecordNamesWhyAndWhereTheGangWasAborted) {
  struct Case {
    uint32_t code;
    uint16_t fault;
    uint32_t detail;
  };
  const Case cases[] = {
      {TPU_GSYNC_CODE_HOST, TPU_FAULT_HOST_ABORT, 0},
      {TPU_GSYNC_CODE_NOT_STARTED, TPU_FAULT_NOT_STARTED, 0},
      {TPU_GSYNC_CODE_MISMATCH, TPU_FAULT_GANG_MISMATCH, TPU_STATUS_GANG_MISMATCH},
      {TPU_GSYNC_CODE_HART, TPU_FAULT_PEER_LOST, TPU_STATUS_PEER_LOST},
  };
  constexpr uint32_t kOrigin = 6;
  uint32_t faults = 0;
  for (const Case& c : cases) {
    start_program();
    abort(c.code, kOrigin);
    EXPECT_EQ(fault_seq(), ++faults);
    EXPECT_EQ(seen().code, c.fault);
    EXPECT_EQ(seen().origin, kOrigin);
    EXPECT_EQ(seen().detail, c.detail);
    EXPECT_EQ(seen().op_id, TPU_OP_NONE);
    settle();
    EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_ABORTED);
    host_.resume();
    dispatch();
  }
}

TEST_F(Aborts, PeerThatDoesNotDrainIsRecordedOnce) {
  start_program();
  abort(TPU_GSYNC_CODE_FAULT);  // the origin has the record
  EXPECT_EQ(fault_seq(), 0U);
  device_.drained();
  dispatch();
  device_.lose_peer();
  dispatch();
  EXPECT_EQ(fault_seq(), 1U);
  EXPECT_EQ(seen().code, TPU_FAULT_PEER_LOST);
  EXPECT_EQ(seen().detail, TPU_STATUS_PEER_LOST);
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_ABORTED);
}

TEST_F(Aborts, LostPeerDoesNotReplaceTheFaultThatCameFirst) {
  start_program();
  fault(TPU_FAULT_VMEM_RANGE);
  drain_own_fault();
  device_.lose_peer();
  dispatch();
  EXPECT_EQ(fault_seq(), 1U);
  EXPECT_EQ(seen().code, TPU_FAULT_VMEM_RANGE);
  EXPECT_EQ(taken().at(seq_).status, TPU_STATUS_FAULT);
}

TEST_F(Aborts, EnginesThatDoNotStopAreResetWhenTheWatchdogTimeIsOver) {
  EXPECT_EQ(device_.gsync[TPU_GSYNC_PEER_TIMEOUT_OFFSET / 4], 10U);
  start_program();
  const uint64_t now = device_.time;
  abort(TPU_GSYNC_CODE_FAULT);
  ASSERT_TRUE(device_.timer_armed);
  EXPECT_GE(device_.timer_at, now + kWatchdogCycles);
  EXPECT_LE(device_.timer_at, device_.time + kWatchdogCycles);
  EXPECT_EQ(device_.seq_resets, 0U);
  device_.raise(TPU_IRQ_TIMER);
  dispatch();
  EXPECT_EQ(device_.seq_resets, 1U);
  EXPECT_TRUE(device_.barrier_waiting);
}

// Of the program, before its sequencer stopped.
TEST_F(Aborts, AHostCallDoesNotEndTheWaitForTheEngines) {
  start_program();
  abort(TPU_GSYNC_CODE_FAULT);
  device_.raise(TPU_IRQ_HOST_CALL);
  dispatch();
  EXPECT_EQ(device_.seq_resets, 0U);
  EXPECT_TRUE(device_.timer_armed);
}

TEST_F(Aborts, TimerIsOffWhenTheEnginesStopInTime) {
  start_program();
  abort(TPU_GSYNC_CODE_FAULT);
  ASSERT_TRUE(device_.timer_armed);
  device_.drained();
  dispatch();
  EXPECT_FALSE(device_.timer_armed);
}

// The hart of another core may die while this one is in no gang that it knows.
TEST_F(Aborts, AbortOfAnEarlierGangIsIgnored) {
  start_program();
  device_.raise(TPU_IRQ_ABORT);
  dispatch();
  EXPECT_TRUE(device_.program_running);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_RUN);
}

TEST_F(Aborts, TrapOfTheHartIsRecordedAndTellsGangAndHost) {
  start_program();
  const unsigned msis = device_.event_msis;
  fault_record_hart(0x120, 7, 0xDEAD0000);
  EXPECT_EQ(seen().code, TPU_FAULT_FW_TRAP);
  EXPECT_EQ(seen().hart_mepc, 0x120U);
  EXPECT_EQ(seen().hart_mcause, 7U);
  EXPECT_EQ(seen().hart_mtval, 0xDEAD0000U);
  EXPECT_EQ(seen().origin, MockDevice::kCore);
  EXPECT_EQ(seen().launch_id, kLaunch);
  ASSERT_EQ(device_.aborts_sent.size(), 1U);
  EXPECT_EQ(device_.aborts_sent[0].code, TPU_GSYNC_CODE_HART);
  EXPECT_EQ(device_.aborts_sent[0].tag, kLaunch);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_DEAD);
  EXPECT_EQ(device_.event_msis, msis + 1);
}

TEST_F(Aborts, HostCallOfAStoppedProgramTellsTheHostNothing) {
  start_program();
  abort(TPU_GSYNC_CODE_HOST);
  host_.take();
  device_.raise(TPU_IRQ_HOST_CALL);
  dispatch();
  EXPECT_TRUE(host_.take().empty());
}

}  // namespace
}  // namespace tpu::test
