// The firmware's portable part on the host: rings, tracks, statuses, copies, programs, HELD and
// RESUME. Launches: launch_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "firmware_fixture.hpp"
#include "tpu/spec/perf_regs.h"

namespace tpu::test {
namespace {

TEST_F(FirmwareTest, HandshakeReportsVersionAndBuildAndWaitsForTheHost) {
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HANDSHAKE);
  EXPECT_EQ(device_.sys(TPU_SYSCTL_FW_ABI_OFFSET), TPU_RING_ABI);
  EXPECT_EQ(device_.sys(TPU_SYSCTL_FW_BUILD_OFFSET), kBuild);
  EXPECT_EQ(device_.event_msis, 1U);
  open();
  EXPECT_EQ(device_.event_msis, 2U);
}

TEST_F(FirmwareTest, RingsHaveASmallestAndALargestSize) {
  for (const uint32_t log2 : {0U, 17U}) {
    host_.open(log2, 9);
    dispatch();
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HANDSHAKE) << log2;
  }
  host_.open(16, 9);
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(FirmwareTest, OtherMajorVersionIsRefusedAndCanBeMended) {
  host_.open(8, 9, 0, TPU_RING_ABI + 0x10000);
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_ABI_MISMATCH);
  host_.open(8, 9, 0, TPU_RING_ABI + 1);  // another minor version is fine
  dispatch();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(FirmwareTest, CommandsWrapBothRingsAndTheCounts) {
  open(5, 6, 0xFFFFFFF0U);
  for (int batch = 0; batch < 60; ++batch) {
    std::vector<uint32_t> seqs;
    for (int i = 0; i < 1 + batch % 32; ++i) {  // up to an exactly full ring
      seqs.push_back(host_.put(tpu_command_nop_t{}, TPU_OP_NOP));
    }
    const auto done = run();
    ASSERT_EQ(done.size(), seqs.size());
    for (const uint32_t seq : seqs) {
      ASSERT_EQ(done.at(seq).status, TPU_STATUS_OK);
    }
  }
  EXPECT_EQ(device_.sys(TPU_SYSCTL_CMD_FETCHED_OFFSET), host_.tail);
}

TEST_F(FirmwareTest, OddDoorbellsDoNothing) {
  open();
  host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  EXPECT_EQ(run().size(), 1U);
  for (const uint32_t tail :
       {host_.tail, host_.tail - 1, host_.tail + 0x80000000U, host_.tail + 257}) {
    device_.sys(TPU_SYSCTL_CMD_TAIL_OFFSET) = tail;
    device_.raise(TPU_IRQ_DOORBELL);
    settle();
    EXPECT_TRUE(host_.take().empty());
  }
  host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  EXPECT_EQ(run().size(), 1U);
}

TEST_F(FirmwareTest, LostDoorbellInterruptIsMadeGoodAtTheNextEvent) {
  open();
  host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  device_.sys(TPU_SYSCTL_CMD_TAIL_OFFSET) = host_.written;  // register written, no interrupt
  device_.raise(TPU_IRQ_HOST);
  settle();
  EXPECT_EQ(host_.take().size(), 1U);
}

TEST_F(FirmwareTest, InterruptIsSentWhenAskedForAndOnErrors) {
  open();
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP), TPU_STATUS_OK);
  EXPECT_EQ(device_.completion_msis, 0U);
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP, TPU_CMD_FLAG_INTERRUPT), TPU_STATUS_OK);
  EXPECT_EQ(device_.completion_msis, 1U);
  EXPECT_EQ(status_of(tpu_command_nop_t{}, 99), TPU_STATUS_BAD_OPCODE);
  EXPECT_EQ(device_.completion_msis, 2U);
}

TEST_F(FirmwareTest, WrongEntriesHoldTheCoreAndFlushWhatFollows) {
  struct Case {
    const char* name;
    uint32_t status;
    std::function<void()> put;
  };
  const auto raw = [&](size_t byte, uint8_t flip, bool mend) {
    tpu_command_nop_t nop{};
    nop.head.opcode = TPU_OP_NOP;
    nop.head.seq = host_.written;
    nop.head.epoch = host_.epoch;
    std::vector<uint8_t> bytes(TPU_CMD_ENTRY_BYTES);
    std::memcpy(bytes.data(), &nop, bytes.size());
    const uint32_t crc = crc32c(std::span(bytes).first(60));
    std::memcpy(&bytes[60], &crc, 4);
    bytes[byte] ^= flip;
    host_.put_bytes(bytes, mend);
  };
  const Case cases[] = {
      {"crc", TPU_STATUS_BAD_CRC, [&] { raw(30, 1, false); }},
      {"seq", TPU_STATUS_BAD_SEQ, [&] { raw(4, 1, true); }},
      {"opcode", TPU_STATUS_BAD_OPCODE, [&] { raw(0, 0x40, true); }},
      {"flags", TPU_STATUS_BAD_FIELD, [&] { raw(3, 0x80, true); }},
  };
  open();
  for (const Case& c : cases) {
    const uint32_t seq = host_.written;
    c.put();
    host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
    host_.put(tpu_command_nop_t{}, TPU_OP_NOP, TPU_CMD_FLAG_KEEP_ON_FLUSH);
    host_.put(upload(0x40000, 0, 64), TPU_OP_COPY);
    const auto done = run();
    ASSERT_EQ(done.size(), 4U) << c.name;
    EXPECT_EQ(done.at(seq).status, c.status) << c.name;
    EXPECT_EQ(done.at(seq + 1).status, TPU_STATUS_FLUSHED) << c.name;
    EXPECT_EQ(done.at(seq + 2).status, TPU_STATUS_OK) << c.name;
    EXPECT_EQ(done.at(seq + 3).status, TPU_STATUS_FLUSHED) << c.name;
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
    host_.resume();
    EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP), TPU_STATUS_OK);
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
    EXPECT_EQ(device_.sys(TPU_SYSCTL_EPOCH_OFFSET), host_.epoch);
  }
}

// The host cannot know in which track a core counted what it did not believe.
TEST_F(FirmwareTest, TrackCountsBeginAgainWithEachResume) {
  open();
  EXPECT_EQ(status_of(upload(0x40000, 0, 16), TPU_OP_COPY), TPU_STATUS_OK);
  for (int round = 0; round < 3; ++round) {
    const uint32_t bad = host_.put(upload(0x40000, 0, 16), TPU_OP_COPY);
    device_.host[RingHost::kCmdBase + bad * TPU_CMD_ENTRY_BYTES + 30] ^= 1;
    host_.put(upload(0x40000, 0, 16), TPU_OP_COPY);
    const auto done = run();
    EXPECT_EQ(done.at(bad).status, TPU_STATUS_BAD_CRC);
    EXPECT_EQ(done.at(bad + 1).status, TPU_STATUS_FLUSHED);
    host_.resume();
    dispatch();
    tpu_command_nop_t nop{};
    nop.head.wait_up = 1;
    const uint32_t waits = host_.put(nop, TPU_OP_NOP);
    EXPECT_TRUE(run().empty()) << "the uploads of the last epoch do not count";
    host_.put(upload(0x40000, 0, 16), TPU_OP_COPY);
    EXPECT_EQ(run().at(waits).status, TPU_STATUS_OK);
  }
}

TEST_F(FirmwareTest, CommandsOfAnOldEpochAreFlushedWithoutHolding) {
  open();
  EXPECT_EQ(status_of(tpu_command_nop_t{}, 77), TPU_STATUS_BAD_OPCODE);
  host_.resume();
  dispatch();
  --host_.epoch;
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP), TPU_STATUS_FLUSHED);
  ++host_.epoch;
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP), TPU_STATUS_OK);
}

// Kept on a flush is what the flush's own epoch sent: an earlier one's host has given it up.
TEST_F(FirmwareTest, HeldCoresFlushCommandsOfAnOldEpochThatAskToBeKept) {
  open();
  EXPECT_EQ(status_of(tpu_command_nop_t{}, 77), TPU_STATUS_BAD_OPCODE);
  host_.resume();
  EXPECT_EQ(status_of(tpu_command_nop_t{}, 77), TPU_STATUS_BAD_OPCODE);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
  --host_.epoch;
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP, TPU_CMD_FLAG_KEEP_ON_FLUSH),
            TPU_STATUS_FLUSHED);
  ++host_.epoch;
  EXPECT_EQ(status_of(tpu_command_nop_t{}, TPU_OP_NOP, TPU_CMD_FLAG_KEEP_ON_FLUSH), TPU_STATUS_OK);
}

TEST_F(FirmwareTest, RefusedSmallCommandsHoldNothing) {
  open();
  tpu_command_nop_t nop{};
  nop.reserved[8] = 1;
  EXPECT_EQ(status_of(nop, TPU_OP_NOP), TPU_STATUS_BAD_FIELD);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  EXPECT_EQ(status_of(unload, TPU_OP_UNLOAD_PROGRAM), TPU_STATUS_NO_PROGRAM);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(FirmwareTest, CopiesMoveBytesAndReportAddressErrors) {
  open();
  for (size_t i = 0; i < 100; ++i) {
    device_.host[0x40000 + i] = static_cast<uint8_t>(i + 1);
  }
  EXPECT_EQ(status_of(upload(0x40000, 0x100, 100), TPU_OP_COPY), TPU_STATUS_OK);
  EXPECT_EQ(device_.hbm[0x100 + 99], 100);
  tpu_command_copy_t down{};
  down.src = 0x100;
  down.dst = 0x50000;
  down.bytes = 100;
  down.kind = TPU_COPY_D2H;
  EXPECT_EQ(status_of(down, TPU_OP_COPY), TPU_STATUS_OK);
  EXPECT_EQ(device_.host[0x50000 + 99], 100);
  tpu_command_fill_t fill{};
  fill.dst = 0x200;
  fill.bytes = 8;
  fill.pattern = 0xA5A5A5A5;
  EXPECT_EQ(status_of(fill, TPU_OP_FILL), TPU_STATUS_OK);
  EXPECT_EQ(device_.hbm[0x207], 0xA5);
  const auto held = [&](uint32_t wanted, uint32_t status) {
    EXPECT_EQ(status, wanted);
    EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_HELD);
    host_.resume();
    dispatch();
  };
  held(TPU_STATUS_HOST_ADDR, status_of(upload(MockDevice::kHostBytes - 4, 0, 8), TPU_OP_COPY));
  held(TPU_STATUS_HBM_RANGE, status_of(upload(0, MockDevice::kHbmBytes - 4, 8), TPU_OP_COPY));
  fill.bytes = 6;
  held(TPU_STATUS_ALIGN, status_of(fill, TPU_OP_FILL));
  down.kind = 3;
  held(TPU_STATUS_BAD_FIELD, status_of(down, TPU_OP_COPY));
  tpu_command_copy_t across = upload(0, 0x100, 8);
  across.kind = TPU_COPY_D2D;
  across.peer = MockDevice::kCores;
  held(TPU_STATUS_BAD_FIELD, status_of(across, TPU_OP_COPY));
}

TEST_F(FirmwareTest, TracksWaitForEachOtherInAllCombinations) {
  open();
  // A batch of an upload, a download and a NOP; each of the 27 tuples of waits on what came before.
  for (uint32_t combination = 0; combination < 27; ++combination) {
    const uint32_t base[3] = {fw.done[0], fw.done[1], fw.done[2]};
    host_.put(upload(0x40000, 0, 16), TPU_OP_COPY);
    tpu_command_copy_t down{};
    down.dst = 0x50000;
    down.bytes = 16;
    down.kind = TPU_COPY_D2H;
    host_.put(down, TPU_OP_COPY);
    tpu_command_nop_t nop{};
    nop.head.wait_launch = base[0];
    nop.head.wait_up = base[1] + (combination % 3 != 0 ? 1 : 0);
    nop.head.wait_down = base[2] + (combination / 3 % 3 != 0 ? 1 : 0);
    const uint32_t seq = host_.put(nop, TPU_OP_NOP);
    host_.doorbell();
    do {  // a fetch ends at the window's end: there may be two
      dispatch();
    } while (device_.finish_dma(TPU_HOSTDMA_CTX_COMMAND));
    const bool needs_up = combination % 3 != 0;
    const bool needs_down = combination / 3 % 3 != 0;
    EXPECT_EQ(taken().count(seq), needs_up || needs_down ? 0U : 1U);
    device_.finish_dma(TPU_HOSTDMA_CTX_UP);
    dispatch();
    EXPECT_EQ(taken().count(seq), needs_up && !needs_down ? 1U : 0U);
    settle();
    EXPECT_EQ(taken().count(seq), needs_down ? 1U : 0U);
  }
}

TEST_F(FirmwareTest, ProgramsAreRegisteredOnlyWhenGood) {
  open();
  tpu_command_load_t load = host_.image(3, 1, 5, 0x4000);
  load.image_crc ^= 1;
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_BAD_PROGRAM);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);  // a refused load holds nothing
  EXPECT_FALSE(fw.programs[5].loaded);
  load = host_.image(3, 1, 5, 0x4000);
  load.isa_version = TPU_ISA_VERSION + 1;
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_ISA_MISMATCH);
  load = host_.image(3, 1, 64, 0x4000);
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_BAD_FIELD);
  load = host_.image(3, 1, 5, 0x4004);
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_ALIGN);
  // Right CRC, wrong header, word by word.
  for (size_t word = 0; word < 8; ++word) {
    load = host_.image(3, 1, 5, 0x4000);
    device_.host[RingHost::kImage + 4 * word + 3] ^= 0x40;
    load.image_crc = crc32c(std::span(device_.host).subspan(RingHost::kImage, load.bytes));
    EXPECT_NE(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_OK) << word;
    EXPECT_FALSE(fw.programs[5].loaded);
  }
  // More code than the image has bytes behind its header.
  load = host_.image(3, 1, 5, 0x4000);
  device_.host[RingHost::kImage + offsetof(tpu_program_image_header_t, code_bytes)] = 72;
  load.image_crc = crc32c(std::span(device_.host).subspan(RingHost::kImage, load.bytes));
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_BAD_PROGRAM);
  // The entry counts words of eight bytes: the first one behind the 64 bytes of code.
  load = host_.image(3, 1, 5, 0x4000);
  device_.host[RingHost::kImage + offsetof(tpu_program_image_header_t, entry_word)] = 8;
  load.image_crc = crc32c(std::span(device_.host).subspan(RingHost::kImage, load.bytes));
  EXPECT_EQ(status_of(load, TPU_OP_LOAD_PROGRAM), TPU_STATUS_BAD_PROGRAM);
  load_program();
  EXPECT_EQ(status_of(host_.image(3, 1, 5, 0x8000), TPU_OP_LOAD_PROGRAM), TPU_STATUS_BUSY);
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  EXPECT_EQ(status_of(unload, TPU_OP_UNLOAD_PROGRAM), TPU_STATUS_OK);
  EXPECT_EQ(status_of(unload, TPU_OP_UNLOAD_PROGRAM), TPU_STATUS_NO_PROGRAM);
}

TEST_F(FirmwareTest, UnloadIsBusyWhileALaunchOfTheWindowNamesTheProgram) {
  open();
  load_program();
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  const uint32_t seq = host_.put(unload, TPU_OP_UNLOAD_PROGRAM);
  host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  const auto done = run();
  EXPECT_EQ(done.at(seq).status, TPU_STATUS_BUSY);
  EXPECT_EQ(done.at(seq + 1).status, TPU_STATUS_OK);
}

TEST_F(FirmwareTest, AProgramMayTakeThePlaceOfAnotherInOneWindow) {
  open();
  load_program();
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  const uint32_t seq = host_.put(unload, TPU_OP_UNLOAD_PROGRAM);
  host_.put(host_.image(3, 1, 5, 0x8000), TPU_OP_LOAD_PROGRAM);
  host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  const auto done = run();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done.at(seq + i).status, TPU_STATUS_OK) << i;
  }
}

TEST_F(FirmwareTest, UnloadDoesNotWaitForLaunchesOfOtherPrograms) {
  open();
  load_program();
  ASSERT_EQ(status_of(host_.image(3, 1, 6, 0x8000), TPU_OP_LOAD_PROGRAM), TPU_STATUS_OK);
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  const uint32_t seq = host_.put(unload, TPU_OP_UNLOAD_PROGRAM);
  host_.put(host_.launch(6, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  const auto done = run();
  EXPECT_EQ(done.at(seq).status, TPU_STATUS_OK);
  EXPECT_EQ(done.at(seq + 1).status, TPU_STATUS_OK);
}

TEST_F(FirmwareTest, CountersComeFromOneSnapshot) {
  open();
  tpu_command_read_counters_t read{};
  read.iova = 0x60000;
  read.bytes = 24;
  read.first = 4;
  EXPECT_EQ(status_of(read, TPU_OP_READ_COUNTERS), TPU_STATUS_OK);
  uint64_t values[3];
  std::memcpy(values, &device_.host[0x60000], sizeof values);
  EXPECT_EQ(values[0], 1004U);
  EXPECT_EQ(values[2], 1006U);
  read.first = TPU_PERF_COUNTERS - 2;
  EXPECT_EQ(status_of(read, TPU_OP_READ_COUNTERS), TPU_STATUS_BAD_FIELD);
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
}

TEST_F(FirmwareTest, SetKnowsItsKeys) {
  open();
  tpu_command_set_t set{};
  set.key = TPU_SET_WATCHDOG;
  set.value = 77;
  EXPECT_EQ(status_of(set, TPU_OP_SET), TPU_STATUS_OK);
  EXPECT_EQ(fw.default_watchdog_kcycles, 77U);
  set.key = 99;
  EXPECT_EQ(status_of(set, TPU_OP_SET), TPU_STATUS_BAD_FIELD);
}

}  // namespace
}  // namespace tpu::test
