// The firmware's portable part on the host: HELD, RESUME and epochs; entries and fetches that
// cannot be believed.
#include <gtest/gtest.h>

#include "firmware_fixture.hpp"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {
namespace {

class Held : public FirmwareTest {
 protected:
  void hold() {
    ASSERT_EQ(status_of(tpu_command_nop_t{}, 77), TPU_STATUS_BAD_OPCODE);
    ASSERT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  }
  void doorbell() {
    host_.doorbell();
    dispatch();
    while (device_.finish_dma(TPU_HOSTDMA_CTX_COMMAND)) {
      dispatch();
    }
  }
  // One launch runs its program; its table came, nothing else is under way.
  void start_program() {
    load_program();
    host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
    doorbell();
    ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_TABLE));
    dispatch();
    device_.release();
    dispatch();
    ASSERT_TRUE(device_.program_running);
  }
  void fail_an_upload() {
    host_.put(upload(1ULL << 40, 0, 16), TPU_OP_COPY);
    doorbell();
    ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_UP));
    dispatch();
  }
  bool table_under_way() { return device_.dma_busy(TPU_HOSTDMA_CTX_TABLE); }
};

TEST_F(Held, BootWritesTheEpochItStartsWith) {
  device_.sys(TPU_SYSCTL_EPOCH_OFFSET) = 77;
  fw = fw_t{};
  fw_boot(kBuild);
  EXPECT_EQ(device_.sys(TPU_SYSCTL_EPOCH_OFFSET), 0U);
}

TEST_F(Held, CompletionsSayTheirEpoch) {
  open();
  hold();
  host_.resume();
  const uint32_t seq = host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  EXPECT_EQ(run().at(seq).epoch, host_.epoch);
}

TEST_F(Held, CopiesThatAskToBeKeptAreFlushed) {
  open();
  hold();
  EXPECT_EQ(status_of(upload(0x40000, 0, 16), TPU_OP_COPY, TPU_CMD_FLAG_KEEP_ON_FLUSH),
            TPU_STATUS_FLUSHED);
}

TEST_F(Held, CommandsOfTheNextEpochWaitForItsResume) {
  open();
  hold();
  ++host_.epoch;
  const uint32_t seq = host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  EXPECT_TRUE(run().empty());
  --host_.epoch;
  host_.resume();
  EXPECT_EQ(run().at(seq).status, TPU_STATUS_OK);
}

TEST_F(Held, OnlyTheNextEpochResumes) {
  open();
  hold();
  device_.sys(TPU_SYSCTL_RESUME_OFFSET) = host_.epoch + 2;
  device_.raise(TPU_IRQ_HOST);
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  host_.resume();
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(Held, ResumeWaitsForACopyThatIsUnderWay) {
  open();
  tpu_command_copy_t down = upload(0, 0x50000, 16);
  down.kind = TPU_COPY_D2H;
  host_.put(down, TPU_OP_COPY);
  fail_an_upload();
  ASSERT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  host_.resume();
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_DOWN));
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

// The table comes into a bank that the next launch would use.
TEST_F(Held, ResumeWaitsForTheSlotTableOfAFlushedLaunch) {
  open();
  start_program();
  const uint32_t flushed = host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  doorbell();
  ASSERT_TRUE(table_under_way());
  fail_an_upload();
  device_.finish_program();
  dispatch();
  EXPECT_EQ(taken().at(flushed).status, TPU_STATUS_FLUSHED);
  host_.resume();
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_TABLE));
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  EXPECT_EQ(fw.prep.state, PREP_NONE);  // nothing is left of it
  EXPECT_EQ(status_of(host_.launch(5, 3, 3, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
}

TEST_F(Held, NoSlotTableIsFetchedForALaunchThatWillBeFlushed) {
  open();
  start_program();
  fail_an_upload();
  host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  doorbell();
  EXPECT_FALSE(table_under_way());
}

TEST_F(Held, NoSlotTableIsFetchedForALaunchOfAnotherEpoch) {
  open();
  start_program();
  ++host_.epoch;
  host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  --host_.epoch;
  doorbell();
  EXPECT_FALSE(table_under_way());
}

// The program that it names may be unloaded or loaded before it.
TEST_F(Held, NoSlotTableIsFetchedBehindACommandThatMayChangeThePrograms) {
  open();
  load_program();
  host_.put(host_.image(3, 1, 6, 0x8000), TPU_OP_LOAD_PROGRAM);
  host_.put(host_.launch(6, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  doorbell();
  EXPECT_FALSE(table_under_way());
  settle();
  for (const auto& [seq, entry] : taken()) {
    EXPECT_EQ(entry.status, TPU_STATUS_OK) << seq;
  }
}

TEST_F(Held, ProgramsAreLoadedBehindALaunch) {
  open();
  load_program();
  EXPECT_EQ(status_of(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
  EXPECT_EQ(status_of(host_.image(3, 1, 6, 0x8000), TPU_OP_LOAD_PROGRAM), TPU_STATUS_OK);
}

// A corrupt entry may look like a download: it counts where nothing of it has to be believed.
TEST_F(Held, CorruptEntriesCountInTheLaunchTrack) {
  open();
  tpu_command_copy_t down = upload(0, 0x50000, 16);
  down.kind = TPU_COPY_D2H;
  const uint32_t bad = host_.put(down, TPU_OP_COPY);
  device_.host[RingHost::kCmdBase + bad * TPU_CMD_ENTRY_BYTES + 30] ^= 1;
  tpu_command_nop_t nop{};
  nop.head.wait_launch = 1;
  const uint32_t seq = host_.put(nop, TPU_OP_NOP, TPU_CMD_FLAG_KEEP_ON_FLUSH);
  const auto done = run();
  EXPECT_EQ(done.at(bad).status, TPU_STATUS_BAD_CRC);
  ASSERT_EQ(done.count(seq), 1U);
  EXPECT_EQ(done.at(seq).status, TPU_STATUS_OK);
}

TEST_F(Held, CorruptLaunchBehindAnUnloadKeepsNoProgramBusy) {
  open();
  load_program();
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  const uint32_t seq = host_.put(unload, TPU_OP_UNLOAD_PROGRAM);
  const uint32_t bad = host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  device_.host[RingHost::kCmdBase + bad * TPU_CMD_ENTRY_BYTES + 30] ^= 1;
  EXPECT_EQ(run().at(seq).status, TPU_STATUS_OK);
}

TEST_F(Held, FetchesOfASmallRingEndAtItsEnd) {
  open(3, 6, 5);
  for (uint32_t i = 0; i < 8; ++i) {
    host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  }
  const auto done = run();
  ASSERT_EQ(done.size(), 8U);
  for (const auto& [seq, entry] : done) {
    EXPECT_EQ(entry.status, TPU_STATUS_OK) << seq;
  }
}

TEST_F(Held, RingThatCannotBeReadFlushesWhatWaitsAndIsReadAgainAfterResume) {
  open();
  tpu_command_nop_t nop{};
  nop.head.wait_up = 1;
  const uint32_t waits = host_.put(nop, TPU_OP_NOP);
  EXPECT_TRUE(run().empty());
  const uint64_t base = fw.cmd_base;
  fw.cmd_base = 1ULL << 40;  // the host has taken the ring's memory away
  host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  host_.doorbell();
  dispatch();
  ASSERT_TRUE(device_.finish_dma(TPU_HOSTDMA_CTX_COMMAND));
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  EXPECT_EQ(taken().at(waits).status, TPU_STATUS_FLUSHED);
  EXPECT_FALSE(device_.dma_busy(TPU_HOSTDMA_CTX_COMMAND));
  fw.cmd_base = base;
  host_.resume();
  settle();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  EXPECT_EQ(taken().size(), 1U);  // of the old epoch: flushed
}

}  // namespace
}  // namespace tpu::test
