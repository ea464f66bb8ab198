// The firmware's portable part on the host: fields of commands and program headers at and behind
// their limits. Each case differs from a good command in one field.
#include <gtest/gtest.h>

#include <functional>

#include "firmware_fixture.hpp"
#include "tpu/spec/gsync_regs.h"
#include "tpu/spec/perf_regs.h"
#include "tpu/spec/seq_regs.h"

namespace tpu::test {
namespace {

class Fields : public FirmwareTest {
 protected:
  void SetUp() override { open(); }

  template <typename Command>
  void refused(Command command, uint32_t opcode, uint32_t flags = 0,
               uint32_t wanted = TPU_STATUS_BAD_FIELD) {
    EXPECT_EQ(status_of(command, opcode, flags), wanted);
    if (state() == TPU_CORE_PAGE_STATE_HELD) {
      host_.resume();
      dispatch();
    }
  }
  // Good as it is; refused with any of the bytes `first .. first + bytes` set.
  template <typename Command>
  void reserved(const Command& good, uint32_t opcode, size_t first, size_t bytes) {
    for (size_t i = first; i < first + bytes; ++i) {
      SCOPED_TRACE(i);
      Command command = good;
      reinterpret_cast<uint8_t*>(&command)[i] = 1;
      refused(command, opcode);
    }
  }
  void header_refused(const std::function<void(tpu_program_image_header_t&)>& spoil) {
    tpu_command_load_t load = host_.image(3, 1, 5, 0x4000);
    tpu_program_image_header_t header;
    std::memcpy(&header, &device_.host[RingHost::kImage], sizeof header);
    spoil(header);
    std::memcpy(&device_.host[RingHost::kImage], &header, sizeof header);
    load.image_crc = crc32c(std::span(device_.host).subspan(RingHost::kImage, load.bytes));
    refused(load, TPU_OP_LOAD_PROGRAM, 0, TPU_STATUS_BAD_PROGRAM);
    EXPECT_FALSE(fw.programs[5].loaded);
  }
};

TEST_F(Fields, ReservedOnesAreZero) {
  load_program();
  reserved(upload(0x40000, 0, 16), TPU_OP_COPY, offsetof(tpu_command_copy_t, reserved), 1);
  reserved(upload(0x40000, 0, 16), TPU_OP_COPY, offsetof(tpu_command_copy_t, reserved2), 4);
  tpu_command_fill_t fill{};
  fill.bytes = 8;
  reserved(fill, TPU_OP_FILL, offsetof(tpu_command_fill_t, reserved), 8);
  reserved(fill, TPU_OP_FILL, offsetof(tpu_command_fill_t, reserved2), 8);
  tpu_command_read_counters_t read{};
  read.iova = 0x60000;
  read.bytes = 8;
  reserved(read, TPU_OP_READ_COUNTERS, offsetof(tpu_command_read_counters_t, reserved), 8);
  reserved(read, TPU_OP_READ_COUNTERS, offsetof(tpu_command_read_counters_t, reserved2), 8);
  tpu_command_set_t set{};
  set.key = TPU_SET_TRACE;
  reserved(set, TPU_OP_SET, offsetof(tpu_command_set_t, reserved), 16);
  reserved(set, TPU_OP_SET, offsetof(tpu_command_set_t, reserved2), 12);
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  reserved(unload, TPU_OP_UNLOAD_PROGRAM, offsetof(tpu_command_unload_t, reserved), 28);
  reserved(unload, TPU_OP_UNLOAD_PROGRAM, offsetof(tpu_command_unload_t, reserved2), 6);
  reserved(host_.image(3, 1, 6, 0x8000), TPU_OP_LOAD_PROGRAM,
           offsetof(tpu_command_load_t, reserved), 2);
  reserved(tpu_command_nop_t{}, TPU_OP_NOP, offsetof(tpu_command_nop_t, reserved), 36);
}

TEST_F(Fields, OpcodesOutsideOfTheTableAreUnknown) {
  refused(tpu_command_nop_t{}, TPU_OP_LOAD_PROGRAM - 1, 0, TPU_STATUS_BAD_OPCODE);
  refused(tpu_command_nop_t{}, TPU_OP_SET + 1, 0, TPU_STATUS_BAD_OPCODE);
}

TEST_F(Fields, FeedsOfACopyFitItsKind) {
  tpu_command_copy_t down = upload(0, 0x50000, 16);
  down.kind = TPU_COPY_D2H;
  refused(down, TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  refused(upload(0x40000, 0, 16), TPU_OP_COPY, TPU_CMD_FLAG_OUTFEED);
  tpu_command_copy_t piece = upload(0x40000, 0, 16);
  piece.feed_more = 1;
  refused(piece, TPU_OP_COPY);  // of no batch
  piece.feed_more = 2;
  refused(piece, TPU_OP_COPY, TPU_CMD_FLAG_INFEED);
  tpu_command_copy_t addressed = upload(0x40000, 0, 16);
  addressed.peer = 1;
  refused(addressed, TPU_OP_COPY);
}

TEST_F(Fields, HeadersOfProgramsAreInsideTheBoard) {
  header_refused([](auto& h) { h.slots = TPU_MAX_SLOTS + 1; });
  header_refused([](auto& h) { h.cores = 0; });
  header_refused([](auto& h) { h.cores = MockDevice::kCores + 1; });
  header_refused([](auto& h) { h.code_bytes = 0; });
  header_refused([](auto& h) { h.code_bytes = 60; });
  header_refused([](auto& h) { h.flags = 1; });
  load_program(TPU_MAX_SLOTS, MockDevice::kCores);  // the limits themselves are good
}

TEST_F(Fields, ImagesHaveALengthThatTheirTransferCanHave) {
  tpu_command_load_t load = host_.image(3, 1, 5, 0x4000);
  load.bytes = sizeof(tpu_program_image_header_t) - 4;
  refused(load, TPU_OP_LOAD_PROGRAM);
  load = host_.image(3, 1, 5, 0x4000);
  load.bytes += 1ULL << 32;
  refused(load, TPU_OP_LOAD_PROGRAM);
  load = host_.image(3, 1, 5, 0x4000);
  load.bytes += 2;
  refused(load, TPU_OP_LOAD_PROGRAM, 0, TPU_STATUS_ALIGN);
}

TEST_F(Fields, LaunchesNameTheirProgramsCoresAndSlots) {
  load_program(3, 2);
  const uint16_t both = kAlone | 1U;
  ASSERT_EQ(status_of(host_.launch(5, 3, 1, 1, both), TPU_OP_LAUNCH), TPU_STATUS_OK);
  refused(host_.launch(5, 2, 2, 1, both), TPU_OP_LAUNCH, 0, TPU_STATUS_NO_SLOT);
  refused(host_.launch(5, 3, 3, 1, kAlone), TPU_OP_LAUNCH);
  refused(host_.launch(5, 3, 4, 1, 3U), TPU_OP_LAUNCH);  // two cores, this one is not among them
  refused(host_.launch(TPU_MAX_PROGRAMS, 3, 5, 1, both), TPU_OP_LAUNCH);
  tpu_command_launch_t launch = host_.launch(5, 3, 6, 1, both);
  launch.replica = 1;
  EXPECT_EQ(status_of(launch, TPU_OP_LAUNCH), TPU_STATUS_OK);
}

TEST_F(Fields, ALaunchMayHaveAsManySlotsAsABank) {
  load_program(TPU_MAX_SLOTS);
  EXPECT_EQ(status_of(host_.launch(5, TPU_MAX_SLOTS, 1, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
  EXPECT_EQ(device_.seq[TPU_SEQ_SLOT_COUNT_OFFSET / 4], TPU_MAX_SLOTS);
}

TEST_F(Fields, RefusedLaunchOfOneCoreHasNoGangToTell) {
  load_program();
  tpu_command_launch_t launch = host_.launch(5, 3, 1, 1, kAlone);
  launch.steps = 0;
  refused(launch, TPU_OP_LAUNCH);
  EXPECT_TRUE(device_.aborts_sent.empty());
}

TEST_F(Fields, ALaunchsOwnWatchdogGoesBeforeTheDefault) {
  load_program();
  tpu_command_launch_t launch = host_.launch(5, 3, 1, 1, kAlone);
  launch.watchdog_kcycles = 7;
  EXPECT_EQ(status_of(launch, TPU_OP_LAUNCH), TPU_STATUS_OK);
  EXPECT_EQ(device_.seq[TPU_SEQ_WATCHDOG_LO_OFFSET / 4], 7U * 1024U);
}

TEST_F(Fields, EveryLoadIsAnotherVersionOfTheProgram) {
  const auto version = [&](uint32_t launch_id) {
    EXPECT_EQ(status_of(host_.launch(5, 3, launch_id, 1, kAlone), TPU_OP_LAUNCH), TPU_STATUS_OK);
    return device_.seq[TPU_SEQ_PROGRAM_VERSION_OFFSET / 4];
  };
  load_program();
  const uint32_t first = version(1);
  tpu_command_unload_t unload{};
  unload.program_id = 5;
  ASSERT_EQ(status_of(unload, TPU_OP_UNLOAD_PROGRAM), TPU_STATUS_OK);
  load_program();
  EXPECT_NE(version(2), first);
}

TEST_F(Fields, CountersAreReadInWholesAndToWhereTheHostHasMemory) {
  tpu_command_read_counters_t read{};
  read.iova = 0x60000;
  read.bytes = 8 * FW_COUNTERS;
  EXPECT_EQ(status_of(read, TPU_OP_READ_COUNTERS), TPU_STATUS_OK);
  EXPECT_EQ(device_.counter_snapshots, 1U);
  read.bytes = 8 * (FW_COUNTERS + 1);
  refused(read, TPU_OP_READ_COUNTERS);
  read.bytes = 12;
  refused(read, TPU_OP_READ_COUNTERS);
  read.bytes = 8;
  read.first = TPU_PERF_COUNTERS - 1;
  EXPECT_EQ(status_of(read, TPU_OP_READ_COUNTERS), TPU_STATUS_OK);
  read.first = TPU_PERF_COUNTERS;
  refused(read, TPU_OP_READ_COUNTERS);
  read.first = 0;
  read.iova = 1ULL << 40;
  refused(read, TPU_OP_READ_COUNTERS, 0, TPU_STATUS_HOST_ADDR);
}

}  // namespace
}  // namespace tpu::test
