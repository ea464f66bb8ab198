// Rules of commands: the first that is broken, by detail and text.
#include "command/rules.hpp"

#include <gtest/gtest.h>

#include "board/board_loader.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::spec {
namespace {

const BoardParams kBoard = load_board("v3_8");

DmaCommand good_dma() {
  DmaCommand c;
  c.head.opcode = static_cast<uint8_t>(Opcode::kDma);
  c.head.queue = static_cast<uint8_t>(Queue::kDmaIn);
  c.src.space = static_cast<uint8_t>(Space::kHbm);
  c.dst.space = static_cast<uint8_t>(Space::kVmem);
  c.elem_bytes = 4;
  c.counts = {1, 1, 1, 4, 8};
  c.src_strides = c.dst_strides = {0, 0, 0, 32, 4};
  return c;
}

TEST(Rules, AGoodTransferBreaksNone) {
  const DmaCommand c = good_dma();
  EXPECT_EQ(violation(c.head, kBoard).detail, 0u);
  EXPECT_EQ(violation(c, kBoard).detail, 0u);
}

TEST(Rules, QueuesAndSemaphores) {
  DmaCommand c = good_dma();
  c.head.queue = static_cast<uint8_t>(Queue::kVpu);
  EXPECT_EQ(violation(c.head, kBoard).text, "dma on queue 2");
  c = good_dma();
  c.head.wait[1] = {200, Wait::kValid, 1};
  EXPECT_EQ(violation(c.head, kBoard).detail, fault::kDetailSemaphore);
  c.head.wait[1].flags = 0;
  EXPECT_EQ(violation(c.head, kBoard).detail, 0u);
  c.head.wait[0] = {3, Wait::kValid | Wait::kTake, 1};
  c.head.wait[1] = {3, Wait::kValid | Wait::kTake, 2};
  EXPECT_EQ(violation(c.head, kBoard).detail, fault::kDetailSemaphore);
  EXPECT_EQ(violation(c.head, kBoard).text,
            "takes from semaphore 3 in both waits: expected one wait with the sum of the values");
  c.head.wait[1].sem = 4;
  EXPECT_EQ(violation(c.head, kBoard).detail, 0u);
  c.head.wait[1] = {3, Wait::kValid, 2};  // nothing is taken twice
  EXPECT_EQ(violation(c.head, kBoard).detail, 0u);
  c.head.wait = {};
  c.head.signal[0] = {3, Signal::kValid | Signal::kRemote, 1, 0};
  EXPECT_EQ(violation(c.head, kBoard).text, "signals semaphore 3 of another core");
  c.head.queue = static_cast<uint8_t>(Queue::kDmaRemote);
  EXPECT_EQ(violation(c.head, kBoard).detail, 0u);
  c.head.signal[0].peer_reg = 32;
  EXPECT_EQ(violation(c.head, kBoard).detail, fault::kDetailRegister);
}

TEST(Rules, TheSecondMatrixUnitMustBeThere) {
  CommandHeader head;
  head.opcode = static_cast<uint8_t>(Opcode::kMatmul);
  head.queue = static_cast<uint8_t>(Queue::kMxu1);
  EXPECT_EQ(violation(head, kBoard).detail, 0u);
  EXPECT_EQ(violation(head, load_board("v2_8")).detail, fault::kDetailOpcodeQueue);
}

TEST(Rules, TransfersReachTheirMemoriesAndWriteOnce) {
  DmaCommand c = good_dma();
  c.dst.space = static_cast<uint8_t>(Space::kHbm);
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailSpace);
  c = good_dma();
  c.elem_bytes = 3;
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailType);
  c = good_dma();
  c.dst_strides[3] = 0;
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailType);
  c.dst_strides[3] = 30;
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailOverlap);
  c.counts[0] = 0;  // nothing is written
  EXPECT_EQ(violation(c, kBoard).detail, 0u);
  c.src.reg = 40;
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailRegister);
}

TEST(Rules, ATransposeLongerThanTheWatchdogIsNone) {
  TransposeCommand c;
  c.src.space = c.dst.space = static_cast<uint8_t>(Space::kVmem);
  c.elem_bytes = 4;
  c.batch = 1, c.rows = 64, c.cols = 64;
  c.src_pitch = c.dst_pitch = 256;
  EXPECT_EQ(violation(c, kBoard).detail, 0u);
  c.batch = 1 << 20;
  EXPECT_NE(violation(c, kBoard).text.find("longer than the watchdog"), std::string::npos);
  c.dst.space = static_cast<uint8_t>(Space::kHbm);
  EXPECT_EQ(violation(c, kBoard).detail, fault::kDetailSpace);
}

}  // namespace
}  // namespace tpu::spec
