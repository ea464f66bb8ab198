// The real firmware image and mask ROM on the hart's simulator, with the mock device behind the
// bus: boot, handshake, commands, launches within their instruction budget, sleep, traps.
#include "image/firmware_image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hart/hart.hpp"
#include "mock_device.hpp"
#include "ring_host.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::test {
namespace {

using model::Hart;
using model::HartStop;

constexpr uint8_t kAlone = 1U << MockDevice::kCore;

class FirmwareImageTest : public ::testing::Test {
 protected:
  FirmwareImageTest()
      : rom_(TPU_HART_ROM_BYTES),
        itcm_(TPU_HART_ITCM_BYTES),
        dtcm_(TPU_HART_DTCM_BYTES),
        hart_(0, {.taken_branch_cycles = 1, .load_cycles = 1, .mul_cycles = 2, .div_cycles = 16}),
        host_(device_) {
    const firmware::Image& image = firmware::image();
    std::copy(image.rom.begin(), image.rom.end(), rom_.begin());
    std::copy(image.bytes.begin(), image.bytes.end(), itcm_.begin());
    hart_.add_memory({TPU_HART_ROM_BASE, TPU_HART_ROM_BYTES, rom_.data(), false, true});
    hart_.add_memory({TPU_HART_ITCM_BASE, TPU_HART_ITCM_BYTES, itcm_.data(), true, true});
    hart_.add_memory({TPU_HART_DTCM_BASE, TPU_HART_DTCM_BYTES, dtcm_.data(), true, false});
    hart_.add_mmio_window(TPU_HART_MMIO_BASE, 16 * TPU_HART_MMIO_BLOCK_BYTES);
    hart_.add_mmio_window(TPU_HART_HBM_WINDOW_BASE, TPU_HART_HBM_WINDOW_BYTES);
    device_.tcm = [this](uint64_t addr, uint64_t bytes) { return tcm(addr, bytes); };
    device_.sys(TPU_SYSCTL_BOOT_ENTRY_OFFSET) = TPU_HART_ITCM_BASE;
    device_.sys(TPU_SYSCTL_BOOT_LEN_OFFSET) = static_cast<uint32_t>(image.bytes.size());
    device_.sys(TPU_SYSCTL_BOOT_CRC_OFFSET) = image.crc32c;
    hart_.reset(TPU_HART_ROM_BASE);
  }

  std::span<uint8_t> tcm(uint64_t addr, uint64_t bytes) {
    for (auto [base, memory] :
         {std::pair{TPU_HART_ITCM_BASE, &itcm_}, {TPU_HART_DTCM_BASE, &dtcm_}}) {
      const uint64_t offset = addr - base;
      if (offset <= memory->size() && bytes <= memory->size() - offset) {
        return std::span(*memory).subspan(offset, bytes);
      }
    }
    return {};
  }

  // Until the hart sleeps with nothing to wake it, or is dead.
  void run() {
    for (uint32_t slice = 0; slice < 1'000'000; ++slice) {
      hart_.set_irq(model::HartIrq::kExternal, device_.irq_line());
      const HartStop reason = hart_.run(256).reason;
      if (reason == HartStop::kMmio) {
        const model::MmioAccess access = hart_.pending_mmio();
        ASSERT_EQ(access.size_bytes, 4);
        if (access.write) {
          device_.write(access.addr, access.data);
          hart_.complete_mmio(0);
        } else {
          hart_.complete_mmio(device_.read(access.addr));
        }
      } else if (reason == HartStop::kTrap || (reason == HartStop::kWfi && !wakes())) {
        return;
      }
    }
    FAIL() << "the hart does not come to rest, pc " << std::hex << hart_.pc();
  }
  // Whether the device's interrupt line wakes the sleeping hart.
  bool wakes() {
    hart_.set_irq(model::HartIrq::kExternal, device_.irq_line());
    return !hart_.sleeping();
  }
  void settle() {
    run();
    while (device_.settle_one()) {
      run();
    }
  }
  void boot() {
    settle();
    ASSERT_EQ(state(), TPU_CORE_PAGE_STATE_HANDSHAKE);
    host_.open(8, 9);
    settle();
    ASSERT_EQ(state(), TPU_CORE_PAGE_STATE_READY);
  }
  uint32_t state() { return device_.sys(TPU_SYSCTL_FW_STATE_OFFSET) & 0xFFU; }
  uint32_t detail() { return device_.sys(TPU_SYSCTL_FW_STATE_OFFSET) >> 16; }
  std::vector<tpu_completion_t> commands() {
    host_.doorbell();
    settle();
    return host_.take();
  }

  MockDevice device_;
  std::vector<uint8_t> rom_;
  std::vector<uint8_t> itcm_;
  std::vector<uint8_t> dtcm_;
  Hart hart_;
  RingHost host_;
};

TEST_F(FirmwareImageTest, BootsAndCompletesANop) {
  boot();
  EXPECT_EQ(device_.sys(TPU_SYSCTL_FW_ABI_OFFSET), TPU_RING_ABI);
  EXPECT_EQ(device_.sys(TPU_SYSCTL_FW_BUILD_OFFSET), firmware::image().build);
  EXPECT_NE(firmware::image().build, 0U);
  const uint32_t seq = host_.put(tpu_command_nop_t{}, TPU_OP_NOP, TPU_CMD_FLAG_INTERRUPT);
  const auto done = commands();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].seq, seq);
  EXPECT_EQ(done[0].status, TPU_STATUS_OK);
  EXPECT_EQ(device_.completion_msis, 1U);
  EXPECT_EQ(device_.bad_accesses, 0U);
}

TEST_F(FirmwareImageTest, SleepsWhenIdle) {
  boot();
  EXPECT_TRUE(hart_.sleeping());
  const uint64_t before = hart_.instret();
  run();
  EXPECT_EQ(hart_.instret(), before);
}

TEST_F(FirmwareImageTest, MaskRomRefusesACorruptImage) {
  itcm_[1000] ^= 1;
  settle();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_BAD_IMAGE);
  EXPECT_EQ(device_.event_msis, 1U);
  EXPECT_TRUE(hart_.sleeping());
}

TEST_F(FirmwareImageTest, MaskRomRefusesAnImpossibleLength) {
  device_.sys(TPU_SYSCTL_BOOT_LEN_OFFSET) = TPU_HART_ITCM_BYTES + 4;
  settle();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_BAD_IMAGE);
}

TEST_F(FirmwareImageTest, LaunchStaysWithinItsInstructionBudget) {
  constexpr uint64_t kBudgetPerLaunch = 3000;
  constexpr uint64_t kBudgetPerStep = 400;
  boot();
  host_.put(host_.image(48, 1, 5, 0x4000), TPU_OP_LOAD_PROGRAM);
  ASSERT_EQ(commands().at(0).status, TPU_STATUS_OK);
  uint64_t cost[2] = {};
  for (const uint32_t steps : {1U, 11U}) {
    const uint64_t before = hart_.instret();
    host_.put(host_.launch(5, 48, 9 + steps, steps, kAlone), TPU_OP_LAUNCH, TPU_CMD_FLAG_INTERRUPT);
    const auto done = commands();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, TPU_STATUS_OK);
    EXPECT_EQ(done[0].step, steps);
    cost[steps == 1 ? 0 : 1] = hart_.instret() - before;
  }
  RecordProperty("instructions_launch_1_step", std::to_string(cost[0]));
  RecordProperty("instructions_launch_11_steps", std::to_string(cost[1]));
  std::printf("instructions: launch of 1 step %llu, of 11 steps %llu\n",
              static_cast<unsigned long long>(cost[0]), static_cast<unsigned long long>(cost[1]));
  EXPECT_LT(cost[0], kBudgetPerLaunch);
  EXPECT_LT(cost[1], kBudgetPerLaunch + 10 * kBudgetPerStep);
  EXPECT_EQ(device_.programs_started, 12U);
}

TEST_F(FirmwareImageTest, FaultOfAProgramIsReportedAndTheCoreGoesOn) {
  boot();
  host_.put(host_.image(3, 1, 5, 0x4000), TPU_OP_LOAD_PROGRAM);
  commands();
  host_.put(host_.launch(5, 3, 1, 1, kAlone), TPU_OP_LAUNCH);
  host_.doorbell();
  run();
  while (!device_.program_running) {
    ASSERT_TRUE(device_.settle_one());
    run();
  }
  tpu_fault_record_t record{};
  record.code = TPU_FAULT_SLOT_RANGE;
  record.op_id = 42;
  device_.fault_program(record);
  settle();
  const auto done = host_.take();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, TPU_STATUS_FAULT);
  tpu_fault_record_t seen;
  std::memcpy(&seen, &device_.sys(TPU_SYSCTL_FAULT_RECORD_OFFSET), sizeof seen);
  EXPECT_EQ(seen.op_id, 42U);
  EXPECT_EQ(seen.code, TPU_FAULT_SLOT_RANGE);
  host_.resume();
  settle();
  host_.put(host_.launch(5, 3, 2, 1, kAlone), TPU_OP_LAUNCH);
  EXPECT_EQ(commands().at(0).status, TPU_STATUS_OK);
}

TEST_F(FirmwareImageTest, TrapLeavesARecordAndADeadHart) {
  boot();
  hart_.set_pc(0x7000'0000);
  device_.raise(TPU_IRQ_DOORBELL);
  run();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_DEAD);
  tpu_fault_record_t record;
  std::memcpy(&record, &device_.sys(TPU_SYSCTL_FAULT_RECORD_OFFSET), sizeof record);
  EXPECT_EQ(record.code, TPU_FAULT_FW_TRAP);
  EXPECT_EQ(record.hart_mepc, 0x7000'0000U);
  EXPECT_EQ(record.hart_mcause, 1U);  // instruction access fault
  EXPECT_EQ(record.op_id, TPU_OP_NONE);
  EXPECT_TRUE(hart_.sleeping());
}

TEST_F(FirmwareImageTest, CodePlacesNameFunctionAndLine) {
  const firmware::Image& image = firmware::image();
  EXPECT_EQ(firmware::code_place(image, TPU_HART_ITCM_BASE).substr(0, 15), "_start (crt0.S:");
  EXPECT_EQ(firmware::code_place(image, TPU_HART_ROM_BASE).substr(0, 14), "_start (rom.S:");
  EXPECT_EQ(firmware::code_place(image, 0x7000'0000), "");
  // Every byte of code has a function, and nearly every one a line.
  uint32_t with_line = 0;
  for (const firmware::CodeLine& line : image.lines) {
    with_line += line.line != 0 ? 1 : 0;
  }
  EXPECT_GT(with_line * 10, image.lines.size() * 9);
  const auto main = std::ranges::find_if(
      image.lines, [&](const auto& line) { return image.names[line.function] == "main"; });
  ASSERT_NE(main, image.lines.end());
  EXPECT_EQ(firmware::code_place(image, main->address + 2).substr(0, 13), "main (main.c:");
}

TEST_F(FirmwareImageTest, StackOverflowTrapsInsteadOfOverwriting) {
  boot();
  hart_.set_reg(2, TPU_HART_DTCM_BASE + 8);  // sp: nearly used up
  host_.put(tpu_command_nop_t{}, TPU_OP_NOP);
  host_.doorbell();
  settle();
  EXPECT_EQ(state(), TPU_CORE_PAGE_STATE_DEAD);
  EXPECT_EQ(detail(), 7U);  // store access fault
}

}  // namespace
}  // namespace tpu::test
