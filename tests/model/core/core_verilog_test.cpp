// Semaphores and DMA queues as Verilog, and in lockstep, against their models: equal bits, equal
// times of every command, equal faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core_bench.hpp"
#include "exchange_run.hpp"

namespace tpu::model::test {
namespace {

class CoreVerilog : public ::testing::Test {
 protected:
  static constexpr const char* kChips = "board.chips=2";

  void expect_alike(const ProgramBuilder& program) {
    const Seen wanted = run(model_, program);
    EXPECT_EQ(run(rtl_, program), wanted);
    EXPECT_EQ(run(lockstep_, program), wanted);
    EXPECT_THAT(lockstep_.verilog_differences, testing::IsEmpty());
    for (CoreBench* bench : {&model_, &rtl_, &lockstep_}) {
      bench->sink.commands.clear();
    }
  }

  CoreBench model_{"model", {.overrides = {kChips}, .threads = 2}};
  CoreBench rtl_{"rtl", {.overrides = {kChips}, .threads = 2, .verilog = VerilogMode::kRtl}};
  CoreBench lockstep_{"lockstep",
                      {.overrides = {kChips}, .threads = 2, .verilog = VerilogMode::kLockstep}};
};

TEST_F(CoreVerilog, ExchangesAreEqual) {
  for (const uint32_t mask : {1u, 3u}) {
    expect_alike(exchange_program(mask));
    EXPECT_EQ(rtl_.fault_record(0).code, 0);
  }
  EXPECT_GT(lockstep_.verilog_compared, 2 * kCores * 8);
  EXPECT_EQ(rtl_.verilog_compared, 0U);
}

// Backwards, with gaps on one side only, in elements of one byte, and fills.
TEST_F(CoreVerilog, OddBoxesAreEqual) {
  ProgramBuilder p;
  spec::DmaCommand gather;
  gather.src = hbm(0, 5), gather.dst = vmem(3), gather.elem_bytes = 1, gather.peer_reg = 0;
  gather.src.offset += 6 * 185;
  gather.counts = {1, 2, 9, 7, 1'111};
  gather.src_strides = {0, 70'000, 2'500, -185, 1};
  gather.dst_strides = {0, 9 * 7 * 1'111, 7 * 1'111, 1'111, 1};
  p.command(gather, spec::Opcode::kDma, Queue::kDmaIn, Sync().signal(1).signal(3, 2));
  p.scalar(spec::ScalarOp::kSwait, 0, 3, 0, 2);
  spec::FillCommand fill;
  fill.dst = vmem(0x100000), fill.elem_bytes = 2;
  fill.pattern = 0xabcd;
  fill.counts = {1, 1, 3, 5, 777};
  fill.dst_strides = {0, 0, 60'000, 3'000, 2};
  p.command(fill, spec::Opcode::kFill, Queue::kDmaIn, Sync().wait(1).signal(2));
  p.copy(Queue::kDmaOut, vmem(0), hbm(2, 0), kBytes, Sync().wait(2));
  p.copy(Queue::kDmaOut, vmem(0x100000), hbm(2, kBytes), kBytes, Sync());
  p.halt();
  expect_alike(p);
  EXPECT_EQ(rtl_.fault_record(0).code, 0) << rtl_.cores[0]->fault().text();
}

TEST_F(CoreVerilog, ACountOverTheLimitFaultsAlike) {
  ProgramBuilder p;
  p.scalar(spec::ScalarOp::kSsignal, 0, 7, 0, 65'000);
  p.scalar(spec::ScalarOp::kSsignal, 0, 7, 0, 65'000);
  p.nop(Queue::kDmaIn, Sync().wait(8));
  p.halt();
  expect_alike(p);
  EXPECT_EQ(rtl_.fault_record(0).code, TPU_FAULT_SEM_OVERFLOW);
  EXPECT_EQ(rtl_.cores[0]->fault().text(), model_.cores[0]->fault().text());
}

TEST_F(CoreVerilog, BoardsWithoutVerilogAreRefused) {
  const auto open = [](const char* number) {
    const CoreBench bench(sc_core::sc_gen_unique_name("other"),
                          {.overrides = {kChips, number}, .verilog = VerilogMode::kRtl});
  };
  EXPECT_THAT([&] { open("core.semaphores=64"); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("found 64 and 1")));
  EXPECT_THAT([&] { open("dma.granule_bytes=256"); },
              testing::ThrowsMessage<std::runtime_error>(testing::HasSubstr("not of 256")));
}

}  // namespace
}  // namespace tpu::model::test
