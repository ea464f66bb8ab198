// Fuzzing of the command ring: whatever the host writes, the firmware stays inside its memory.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "firmware_fixture.hpp"

namespace tpu::test {
namespace {

// Random bytes in entries, CRC mended or not, random doorbells, random order of what the device
// ends. No access may leave its memory, each seq completes at most once, and the core stays usable.
// A ring that deadlocks by its own waits is what a host resets the core for: the board is booted
// again now and then.
class FirmwareFuzzTest : public FirmwareTest {
 protected:
  uint32_t pick(uint32_t count) { return static_cast<uint32_t>(random_() % count); }

  void reboot() {
    fw = fw_t{};
    host_.epoch = 0;
    device_.sys(TPU_SYSCTL_RESUME_OFFSET) = 0;
    device_.reset();
    fw_boot(kBuild);
    completed_.clear();
    open(6, 9, static_cast<uint32_t>(random_()));
    load_program();
  }

  void put_entry() {
    std::vector<uint8_t> bytes(TPU_CMD_ENTRY_BYTES);
    for (uint8_t& byte : bytes) {
      byte = pick(3) == 0 ? static_cast<uint8_t>(random_()) : 0;
    }
    if (pick(3) == 0) {
      tpu_command_launch_t launch =
          host_.launch(5, 3, static_cast<uint32_t>(random_()), 1 + pick(4), kAlone);
      launch.head.opcode = TPU_OP_LAUNCH;
      launch.slots = static_cast<uint16_t>(launch.slots + pick(20) / 19);
      std::memcpy(bytes.data(), &launch, sizeof launch);
    }
    if (pick(8) != 0) {
      tpu_command_head_t head{};
      std::memcpy(&head, bytes.data(), sizeof head);
      head.opcode = static_cast<uint16_t>(head.opcode == TPU_OP_LAUNCH ? TPU_OP_LAUNCH : pick(10));
      head.flags = static_cast<uint16_t>(pick(16) == 0 ? pick(16) : 0);
      head.seq = host_.written;
      head.epoch = host_.epoch + pick(40) / 39;
      head.wait_launch = fw.done[0] + pick(50) / 49;
      head.wait_up = fw.done[1] + pick(50) / 49;
      head.wait_down = fw.done[2] - pick(5);
      std::memcpy(bytes.data(), &head, sizeof head);
    }
    host_.put_bytes(bytes, pick(16) != 0);
  }

  void random_events() {
    for (uint32_t i = 0; i < 12; ++i) {
      const uint32_t kind = pick(12);
      if (kind < 6) {
        device_.finish_dma(pick(TPU_HOSTDMA_CONTEXTS));
      } else if (kind == 6) {
        device_.raise(static_cast<uint32_t>(random_()) & 0x3FFU);  // interrupts out of nowhere
      } else if (kind == 7 && device_.program_running) {
        device_.fault_program({});
      } else if (kind == 8 && pick(8) == 0) {
        device_.abort(fw.run.launch_id, pick(8), 1 + pick(5));
      } else {
        device_.settle_one();
      }
      dispatch();
    }
  }

  std::mt19937 random_{7};
  std::map<uint32_t, unsigned> completed_;
};

TEST_F(FirmwareFuzzTest, RandomRingContentsNeverBreakTheFirmware) {
  unsigned completions = 0;
  for (int round = 0; round < 4000; ++round) {
    if (round % 40 == 0) {
      reboot();
    }
    for (uint32_t i = pick(6); i > 0 && host_.written - fw.oldest < 64; --i) {
      put_entry();
    }
    if (pick(10) == 0) {
      device_.sys(TPU_SYSCTL_CMD_TAIL_OFFSET) = host_.tail - pick(5);
      device_.raise(TPU_IRQ_DOORBELL);
      dispatch();
    }
    host_.doorbell();
    random_events();
    settle();
    for (const tpu_completion_t& entry : host_.take()) {
      if ((entry.flags & TPU_CPL_FLAG_MORE) == 0) {
        ASSERT_EQ(++completed_[entry.seq], 1U) << "seq " << entry.seq << " completed twice";
        ++completions;
      }
    }
    if (state() == TPU_CORE_PAGE_STATE_HELD) {
      host_.resume();
      settle();
    }
    ASSERT_LE(fw.fetched - fw.oldest, TPU_CMD_WINDOW);
    ASSERT_EQ(host_.bad_seals, 0U);
    ASSERT_TRUE(state() == TPU_CORE_PAGE_STATE_READY || state() == TPU_CORE_PAGE_STATE_HELD ||
                state() == TPU_CORE_PAGE_STATE_RUN)
        << state();
  }
  EXPECT_GT(completions, 4000U);
  EXPECT_GT(device_.programs_started, 500U);
}

}  // namespace
}  // namespace tpu::test
