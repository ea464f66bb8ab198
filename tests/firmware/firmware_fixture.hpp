// Fixture of the firmware's host tests: the portable sources over the mock device, booted to
// HANDSHAKE.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <vector>

#include "fake/firmware_on_host.hpp"
#include "mock_device.hpp"
#include "ring_host.hpp"
#include "rt/fw.h"
#include "tpu/spec/hart_map.h"

namespace tpu::test {

inline constexpr uint32_t kBuild = 0x1234'5678;
inline constexpr uint8_t kAlone = 1U << MockDevice::kCore;

class FirmwareTest : public ::testing::Test {
 protected:
  FirmwareTest() : host_(device_) {
    device_.tcm = [](uint64_t addr, uint64_t bytes) -> std::span<uint8_t> {
      const uint64_t offset = addr - TPU_HART_DTCM_BASE;
      if (offset > sizeof fw || bytes > sizeof fw - offset) {
        return {};
      }
      return {reinterpret_cast<uint8_t*>(&fw) + offset, bytes};
    };
    fw_boot(kBuild);
  }
  ~FirmwareTest() override {
    EXPECT_EQ(device_.bad_accesses, 0U);
    EXPECT_EQ(device_.dma.escapes, 0U);
  }

  uint32_t state() { return device_.sys(TPU_SYSCTL_FW_STATE_OFFSET) & 0xFFU; }
  void open(uint32_t cmd_log2 = 8, uint32_t cpl_log2 = 9, uint32_t count = 0) {
    host_.open(cmd_log2, cpl_log2, count);
    dispatch();
    ASSERT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  }
  void dispatch() {
    while (device_.irq_line()) {
      fw_dispatch(device_.read(TPU_HART_IRQ_BASE + TPU_IRQ_TAKE_OFFSET));
    }
  }
  void settle() {
    dispatch();
    while (device_.settle_one()) {
      dispatch();
    }
  }
  // Doorbell, everything to its end, completions by seq.
  std::map<uint32_t, tpu_completion_t> run() {
    host_.doorbell();
    settle();
    return taken();
  }
  std::map<uint32_t, tpu_completion_t> taken() {
    std::map<uint32_t, tpu_completion_t> result;
    for (const tpu_completion_t& entry : host_.take()) {
      if ((entry.flags & TPU_CPL_FLAG_MORE) == 0) {
        EXPECT_TRUE(result.emplace(entry.seq, entry).second) << "seq completes twice";
      }
    }
    return result;
  }
  template <typename Command>
  uint32_t status_of(Command command, uint32_t opcode, uint32_t flags = 0) {
    const uint32_t seq = host_.put(command, opcode, flags);
    const auto done = run();
    return done.count(seq) != 0 ? done.at(seq).status : 0xFFFFU;
  }
  void load_program(uint32_t slots = 3, uint32_t cores = 1, uint16_t id = 5) {
    ASSERT_EQ(status_of(host_.image(slots, cores, id, 0x4000), TPU_OP_LOAD_PROGRAM), TPU_STATUS_OK);
  }
  tpu_command_copy_t upload(uint64_t src, uint64_t dst, uint64_t bytes) {
    tpu_command_copy_t copy{};
    copy.src = src;
    copy.dst = dst;
    copy.bytes = bytes;
    copy.kind = TPU_COPY_H2D;
    return copy;
  }

  MockDevice device_;
  RingHost host_;
  fw_t state_{};
  const firmware::FirmwareTurn turn_{state_, device_};  // from here on `fw` is state_
};

}  // namespace tpu::test
