// The firmware's portable part on the host: launches with their gangs, faults, aborts and feeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "firmware_fixture.hpp"
#include "gang/core_set.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {
namespace {

TEST_F(FirmwareTest, LaunchRunsItsStepsBehindBarriers) {
  open();
  load_program();
  const uint32_t seq = host_.put(host_.launch(5, 3, 0x10007, 4, kAlone), TPU_OP_LAUNCH);
  const auto done = run();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done.at(seq).status, TPU_STATUS_OK);
  EXPECT_EQ(done.at(seq).step, 4U);
  EXPECT_EQ(done.at(seq).flags & (TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP),
            TPU_CPL_FLAG_STEP | TPU_CPL_FLAG_LAST_STEP);
  EXPECT_EQ(device_.steps_started, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(device_.seq[TPU_SEQ_PROGRAM_LO_OFFSET / 4], 0x4000U);
  EXPECT_EQ(device_.seq[TPU_SEQ_TAG_OFFSET / 4], 0x10007U);
  EXPECT_EQ(device_.seq[TPU_SEQ_WATCHDOG_LO_OFFSET / 4], 10U * 1024U);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

// Only the barrier of a drain may end without all cores.
TEST_F(FirmwareTest, AStepDoesNotStartBehindABarrierThatWasNotReleased) {
  open();
  load_program();
  host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  host_.doorbell();
  dispatch();
  device_.finish_dma(TPU_HOSTDMA_CTX_COMMAND);
  dispatch();
  device_.finish_dma(TPU_HOSTDMA_CTX_TABLE);
  dispatch();
  ASSERT_TRUE(device_.barrier_waiting);
  device_.lose_peer();
  dispatch();
  EXPECT_TRUE(device_.steps_started.empty());
}

TEST_F(FirmwareTest, CompletionsCarryTheirCrc) {
  open();
  load_program();
  host_.put(host_.launch(5, 3, 9, 2, kAlone), TPU_OP_LAUNCH);
  host_.put(host_.launch(5, 3, 10, 0, kAlone), TPU_OP_LAUNCH);  // refused
  EXPECT_EQ(run().size(), 2U);
  EXPECT_EQ(host_.bad_seals, 0U);
  for (uint32_t context = 0; context < TPU_HOSTDMA_CONTEXTS; ++context) {
    const bool posts = context == TPU_HOSTDMA_CTX_COMPLETION;
    EXPECT_EQ((device_.dma.contexts[context].start & TPU_HOSTDMA_START_SEAL_MASK) != 0, posts);
  }
}

TEST_F(FirmwareTest, NextLaunchIsBoundIntoTheOtherBankWhileOneRuns) {
  open();
  load_program();
  host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  host_.doorbell();
  dispatch();
  device_.finish_dma(TPU_HOSTDMA_CTX_COMMAND);
  dispatch();
  device_.finish_dma(TPU_HOSTDMA_CTX_TABLE);
  dispatch();
  const uint32_t bank = device_.seq[TPU_SEQ_SLOT_BANK_OFFSET / 4];
  EXPECT_TRUE(device_.barrier_waiting);
  EXPECT_TRUE(device_.dma_busy(TPU_HOSTDMA_CTX_TABLE));
  EXPECT_EQ(device_.dma.contexts[TPU_HOSTDMA_CTX_TABLE].local, (bank ^ 1U) * TPU_SLOT_BANK_BYTES);
  settle();
  EXPECT_EQ(taken().size(), 2U);
  EXPECT_EQ(device_.seq[TPU_SEQ_SLOT_BANK_OFFSET / 4], bank ^ 1U);
}

// The largest table: all of a bank, each entry of which is checked.
TEST_F(FirmwareTest, BindsAsManySlotsAsALaunchMayHave) {
  const uint64_t bytes = uint64_t{TPU_MAX_SLOTS} * sizeof(tpu_slot_entry_t);
  ASSERT_EQ(bytes, TPU_SLOT_BANK_BYTES);
  open();
  load_program(TPU_MAX_SLOTS);
  EXPECT_EQ(status_of(host_.launch(5, TPU_MAX_SLOTS, 1, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
  EXPECT_EQ(device_.dma.contexts[TPU_HOSTDMA_CTX_TABLE].bytes, bytes);
  EXPECT_EQ(device_.slots_checked, TPU_MAX_SLOTS);
  EXPECT_EQ(device_.seq[TPU_SEQ_SLOT_COUNT_OFFSET / 4], TPU_MAX_SLOTS);
  device_.bad_slot = TPU_MAX_SLOTS - 1;
  EXPECT_EQ(status_of(host_.launch(5, TPU_MAX_SLOTS, 2, 1, kAlone), TPU_OP_LAUNCH),
            TPU_STATUS_NO_SLOT);
}

TEST_F(FirmwareTest, RefusedLaunchTellsItsGangAndHolds) {
  struct Case {
    uint32_t status;
    std::function<void(tpu_command_launch_t&)> spoil;
  };
  const Case cases[] = {
      {TPU_STATUS_NO_PROGRAM, [](tpu_command_launch_t& l) { l.program_id = 6; }},
      {TPU_STATUS_NO_SLOT, [](tpu_command_launch_t& l) { l.slots = 2; }},
      {TPU_STATUS_NO_SLOT, [](tpu_command_launch_t& l) { l.table_crc ^= 1; }},
      {TPU_STATUS_BAD_FIELD, [](tpu_command_launch_t& l) { l.steps = 0; }},
      {TPU_STATUS_BAD_FIELD, [](tpu_command_launch_t& l) { l.launch_id = 0; }},
      {TPU_STATUS_BAD_FIELD, [](tpu_command_launch_t& l) { l.slots = TPU_MAX_SLOTS + 1; }},
      {TPU_STATUS_BAD_FIELD, [](tpu_command_launch_t& l) { l.replica = 2; }},
      {TPU_STATUS_BAD_FIELD,
       [](tpu_command_launch_t& l) { l.core_mask = kAlone | 1U << MockDevice::kCores; }},
      {TPU_STATUS_HOST_ADDR, [](tpu_command_launch_t& l) { l.table_iova = 1ULL << 40; }},
  };
  open();
  load_program(3, 2);
  uint32_t launch_id = 100;
  for (const Case& c : cases) {
    tpu_command_launch_t launch = host_.launch(5, 3, ++launch_id, 1, kAlone | 1U);
    c.spoil(launch);
    EXPECT_EQ(status_of(launch, TPU_OP_LAUNCH), c.status);
    EXPECT_EQ(device_.programs_started, 0U);
    ASSERT_FALSE(device_.aborts_sent.empty());
    EXPECT_EQ(device_.aborts_sent.back().code, TPU_GSYNC_CODE_NOT_STARTED);
    EXPECT_EQ(device_.aborts_sent.back().tag, launch.launch_id);
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
    host_.resume();
    dispatch();
  }
  device_.bad_slot = 1;
  EXPECT_EQ(status_of(host_.launch(5, 3, 200, 1, kAlone | 1U), TPU_OP_LAUNCH), TPU_STATUS_NO_SLOT);
  host_.resume();
  dispatch();
  device_.bad_slot = 0;
  EXPECT_EQ(status_of(host_.launch(5, 3, 201, 1, kAlone | 1U), TPU_OP_LAUNCH), TPU_STATUS_NO_SLOT);
}

// A gang that lies behind the slots of the table.
class GangRows : public FirmwareTest {
 protected:
  static constexpr uint32_t kSlots = 3;
  static constexpr uint32_t kGang = kAlone | 0x3;  // of the board's eight cores

  tpu_command_launch_t launch(uint32_t launch_id, uint32_t gang, uint16_t rows = 1) {
    const size_t at = RingHost::kTable + kSlots * sizeof(tpu_slot_entry_t);
    std::fill_n(device_.host.begin() + static_cast<ptrdiff_t>(at),
                size_t{rows} * TPU_GANG_ROW_BYTES, uint8_t{0});
    std::memcpy(&device_.host[at], &gang, sizeof gang);
    tpu_command_launch_t command = host_.launch(5, kSlots, launch_id, 1, 1);  // the root is core 0
    command.gang_rows = rows;
    command.table_crc = crc32c(std::span(device_.host)
                                   .subspan(RingHost::kTable, kSlots * sizeof(tpu_slot_entry_t) +
                                                                  rows * TPU_GANG_ROW_BYTES));
    return command;
  }
};

TEST_F(GangRows, AreBoundWithTheSlots) {
  open();
  load_program(kSlots, 3);
  uint32_t launch_id = 100;
  for (const uint16_t rows : {uint16_t{1}, static_cast<uint16_t>(TPU_GANG_ROWS)}) {
    EXPECT_EQ(status_of(launch(++launch_id, kGang, rows), TPU_OP_LAUNCH), TPU_STATUS_OK);
    EXPECT_EQ(device_.gang(), spec::CoreSet(kGang));
    EXPECT_EQ(device_.dma.contexts[TPU_HOSTDMA_CTX_TABLE].bytes,
              kSlots * sizeof(tpu_slot_entry_t) + rows * TPU_GANG_ROW_BYTES);
    EXPECT_EQ(device_.slots_checked, kSlots);
    EXPECT_EQ(device_.seq_reg(TPU_SEQ_REPLICA_OFFSET) >> TPU_SEQ_REPLICA_GANG_ROWS_SHIFT, rows);
  }
  EXPECT_EQ(status_of(host_.launch(5, kSlots, ++launch_id, 1, kGang), TPU_OP_LAUNCH),
            TPU_STATUS_OK);
  EXPECT_EQ(device_.gang(), spec::CoreSet(kGang)) << "a mask is a gang as before";
}

TEST_F(GangRows, ThatAreWrongAreRefusedAtTheirRoot) {
  struct Case {
    uint32_t gang;
    std::function<void(tpu_command_launch_t&)> spoil;
    uint32_t status = TPU_STATUS_BAD_FIELD;
  };
  const auto nothing = [](tpu_command_launch_t&) {};
  const Case cases[] = {
      {0x3, nothing},                                                    // without this core
      {kGang | 0x8, nothing},                                            // more than the program's
      {kAlone | 0x1 | 1U << MockDevice::kCores, nothing},                // beyond the board
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.core_mask = 2; }},  // another root
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.core_mask = 4; }},  // a root above this core
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.replica = 3; }},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.gang_rows = TPU_GANG_ROWS + 1; }},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.slots = TPU_MAX_SLOTS; }},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.launch_id = 0; }},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.table_crc ^= 1; }, TPU_STATUS_NO_SLOT},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.slots = 2; }, TPU_STATUS_NO_SLOT},
      {kAlone | 0x3, [](tpu_command_launch_t& l) { l.program_id = 6; }, TPU_STATUS_NO_PROGRAM},
  };
  open();
  load_program(kSlots, 3);
  uint32_t launch_id = 100;
  for (const Case& c : cases) {
    tpu_command_launch_t command = launch(++launch_id, c.gang);
    c.spoil(command);
    device_.aborts_sent.clear();
    EXPECT_EQ(status_of(command, TPU_OP_LAUNCH), c.status) << launch_id;
    EXPECT_EQ(device_.programs_started, 0U);
    ASSERT_EQ(device_.aborts_sent.size(), 1U) << launch_id;
    EXPECT_EQ(device_.aborts_sent[0].code, TPU_GSYNC_CODE_NOT_STARTED);
    EXPECT_EQ(device_.aborts_sent[0].root, command.core_mask - 1);
    EXPECT_TRUE(device_.aborts_sent[0].gang.empty()) << "the root knows it";
    EXPECT_EQ(device_.aborts_sent[0].tag, command.launch_id);
    host_.resume();
    dispatch();
  }
}

TEST_F(FirmwareTest, FaultIsRecordedDrainedAndHeld) {
  open();
  load_program();
  const uint32_t seq = host_.put(host_.launch(5, 3, 9, 3, kAlone), TPU_OP_LAUNCH);
  host_.put(host_.launch(5, 3, 10, 1, kAlone), TPU_OP_LAUNCH);
  host_.doorbell();
  dispatch();
  while (device_.programs_started < 2) {  // into step 1
    ASSERT_TRUE(device_.settle_one());
    dispatch();
  }
  tpu_fault_record_t record{};
  record.code = TPU_FAULT_VMEM_RANGE;
  record.op_id = 321;
  device_.fault_program(record);
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_DRAIN);
  ASSERT_EQ(device_.aborts_sent.size(), 1U);
  EXPECT_EQ(device_.aborts_sent[0].code, TPU_GSYNC_CODE_FAULT);
  tpu_fault_record_t later{};
  later.code = TPU_FAULT_SMEM_RANGE;
  device_.fault_program(later);  // of an engine that had not stopped: the first one is told
  dispatch();
  device_.drained();
  dispatch();
  EXPECT_FALSE(device_.barrier_waiting);  // not before its own abort has come back
  device_.abort(9, MockDevice::kCore, TPU_GSYNC_CODE_FAULT);
  dispatch();
  EXPECT_TRUE(device_.barrier_waiting);
  EXPECT_EQ(device_.barrier_kind, TPU_GSYNC_KIND_DRAIN);
  EXPECT_EQ(device_.seq_resets, 1U);
  settle();
  const auto done = taken();
  EXPECT_EQ(done.at(seq).status, TPU_STATUS_FAULT);
  EXPECT_EQ(done.at(seq).step, 1U);
  EXPECT_EQ(done.at(seq).fault_seq, 1U);
  EXPECT_EQ(done.at(seq + 1).status, TPU_STATUS_FLUSHED);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  tpu_fault_record_t seen;
  std::memcpy(&seen, &device_.sys(TPU_SYSCTL_FAULT_RECORD_OFFSET), sizeof seen);
  EXPECT_EQ(seen.fault_seq, 1U);
  EXPECT_EQ(seen.code, TPU_FAULT_VMEM_RANGE);
  EXPECT_EQ(seen.op_id, 321U);
  EXPECT_EQ(seen.launch_id, 9U);
  EXPECT_EQ(seen.step, 1U);
  EXPECT_EQ(seen.core, MockDevice::kCore);
  host_.resume();
  EXPECT_EQ(status_of(host_.launch(5, 3, 11, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
}

TEST_F(FirmwareTest, AbortByAPeerEndsAbortedInEveryState) {
  open();
  load_program(3, 2);
  uint32_t launch_id = 0;
  for (const bool released : {false, true}) {
    const uint32_t seq = host_.put(host_.launch(5, 3, ++launch_id, 1, kAlone | 1U), TPU_OP_LAUNCH);
    host_.doorbell();
    dispatch();
    while (!device_.barrier_waiting) {
      ASSERT_TRUE(device_.finish_any_dma());
      dispatch();
    }
    if (released) {
      device_.release();
      dispatch();
      EXPECT_TRUE(device_.program_running);
    }
    device_.abort(launch_id, 0, TPU_GSYNC_CODE_FAULT);
    dispatch();
    if (released) {
      device_.drained();
      dispatch();
      EXPECT_TRUE(device_.barrier_waiting);
      device_.release();
      dispatch();
    } else {
      EXPECT_FALSE(device_.barrier_waiting);  // no step ran anywhere: nothing to drain
    }
    const auto done = taken();
    ASSERT_EQ(done.count(seq), 1U);
    EXPECT_EQ(done.at(seq).status, TPU_STATUS_ABORTED);
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
    host_.resume();
    dispatch();
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  }
}

TEST_F(FirmwareTest, AbortAfterTheLastStepDrainsAndHolds) {
  open();
  load_program(3, 2);
  EXPECT_EQ(status_of(host_.launch(5, 3, 4, 1, kAlone | 1U), TPU_OP_LAUNCH), TPU_STATUS_OK);
  device_.abort(4, 0, TPU_GSYNC_CODE_FAULT);
  dispatch();
  EXPECT_TRUE(device_.barrier_waiting);
  EXPECT_EQ(device_.barrier_kind, TPU_GSYNC_KIND_DRAIN);
  device_.release();
  dispatch();
  EXPECT_TRUE(host_.take().empty());
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
}

TEST_F(FirmwareTest, FeedsAreDoubleBufferedOverManySteps) {
  constexpr uint32_t kSteps = 20;
  open();
  load_program();
  const uint32_t flags = TPU_CMD_FLAG_INFEED | TPU_CMD_FLAG_OUTFEED;
  const uint32_t launch = host_.put(host_.launch(5, 3, 9, kSteps, kAlone), TPU_OP_LAUNCH, flags);
  std::vector<tpu_completion_t> all;
  uint32_t copies = 0;
  uint32_t more = 0;
  for (uint32_t step = 0; step < kSteps; ++step) {
    host_.put(upload(0x40000, 0, 16), TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
    tpu_command_copy_t down{};
    down.dst = 0x50000;
    down.bytes = 16;
    down.kind = TPU_COPY_D2H;
    host_.put(down, TPU_OP_COPY, TPU_CMD_FLAG_OUTFEED);
    host_.doorbell();
    dispatch();
    while (device_.settle_one()) {
      EXPECT_LE(fw.infeed_full - fw.infeed_free, TPU_INFEED_DEPTH);
      EXPECT_LE(fw.outfeed_full - fw.outfeed_free, TPU_INFEED_DEPTH);
      dispatch();
    }
    for (const tpu_completion_t& entry : host_.take()) {
      EXPECT_EQ(entry.status, TPU_STATUS_OK);
      if ((entry.flags & TPU_CPL_FLAG_MORE) != 0) {
        EXPECT_EQ(entry.seq, launch);
        EXPECT_EQ(entry.step, ++more);
      } else if (entry.seq == launch) {
        EXPECT_EQ(entry.step, kSteps);
      } else {
        ++copies;
      }
    }
    EXPECT_EQ(device_.programs_started, step + 1);  // starves until the next batch comes
  }
  EXPECT_EQ(more, kSteps - 1);
  EXPECT_EQ(copies, 2 * kSteps);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(FirmwareTest, ABatchInPiecesIsThereWithItsLastPiece) {
  open();
  load_program();
  host_.put(host_.launch(5, 3, 9, 1, kAlone), TPU_OP_LAUNCH, TPU_CMD_FLAG_INFEED);
  tpu_command_copy_t piece = upload(0x40000, 0, 16);
  piece.feed_more = 1;
  host_.put(piece, TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  EXPECT_EQ(run().size(), 1U);
  EXPECT_EQ(device_.programs_started, 0U);
  host_.put(upload(0x40000, 16, 16), TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  EXPECT_EQ(run().size(), 2U);
  EXPECT_EQ(device_.programs_started, 1U);
}

TEST_F(FirmwareTest, LaunchWhoseInfeedFailedIsAborted) {
  open();
  load_program();
  const uint32_t launch =
      host_.put(host_.launch(5, 3, 9, 2, kAlone), TPU_OP_LAUNCH, TPU_CMD_FLAG_INFEED);
  host_.put(upload(1ULL << 40, 0, 16), TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  const auto done = run();
  EXPECT_EQ(done.at(launch + 1).status, TPU_STATUS_HOST_ADDR);
  EXPECT_EQ(done.at(launch).status, TPU_STATUS_FAULT);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
}

}  // namespace
}  // namespace tpu::test
