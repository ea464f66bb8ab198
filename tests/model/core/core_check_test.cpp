// Happens-before checker: programs that order all their accesses are clean; a missing edge is found
// even when simulated time hides it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core_bench.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;
const std::vector<std::string> kOneCore = {"board.chips=1", "board.torus_x=1",
                                           "board.cores_per_chip=1"};

class CoreCheck : public ::testing::Test {
 protected:
  void run(ProgramBuilder& p) {
    bench.bind_slot(0, 0, 0x10000, 1 << 20, TPU_SLOT_FIXED, slot_flags);
    bench.load(0, p.image(1), 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, ++launch);
    bench.start(0);
    bench.run();
    ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  }
  std::string first_finding() const {
    return bench.checker.findings().empty() ? std::string()
                                            : text_of(bench.checker.findings().front());
  }
  uint32_t launch = 0;
  uint8_t slot_flags = 0;
  CoreBench bench{"board", {.overrides = kOneCore, .check = true}};
};

// Two buffers, loads ahead of kernels, every edge kept; run twice to see that launches are ordered.
TEST_F(CoreCheck, DoubleBufferingWithAllEdgesIsClean) {
  ProgramBuilder p;
  constexpr uint32_t kBytes = 4096;
  for (uint32_t i = 0; i < 6; ++i) {
    const int64_t buffer = (i % 2) * 0x10000;
    Sync in = Sync().signal(1);
    if (i >= 2) {
      in.wait(2);  // the kernel has read the buffer
    }
    p.copy(Queue::kDmaIn, hbm(0, i * kBytes), vmem(buffer), kBytes, in);
    Sync kernel = Sync().wait(1).signal(3);
    if (i < 4) {
      kernel.signal(2);
    }
    if (i >= 2) {
      kernel.wait(4);  // the result buffer has been stored
    }
    p.unary_kernel(spec::VpuOp::kAbsF, buffer, buffer + 0x4000, kBytes / 4, kernel);
    Sync out = Sync().wait(3);
    if (i < 4) {
      out.signal(4);
    }
    p.copy(Queue::kDmaOut, vmem(buffer + 0x4000), hbm(0, 0x40000 + i * kBytes), kBytes, out);
  }
  p.halt();
  run(p);
  run(p);
  EXPECT_EQ(bench.checker.count(), 0u) << first_finding();
}

TEST_F(CoreCheck, ForgottenWriteAfterReadEdgeIsFound) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync().signal(1));
  p.unary_kernel(spec::VpuOp::kAbsF, 0, 0x4000, 1024, Sync().wait(1));
  for (int i = 0; i < 8; ++i) {  // so much later that the kernel is long done
    p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0x8000), 65536, Sync());
  }
  p.copy(Queue::kDmaIn, hbm(0, 8192), vmem(2048), 16, Sync());
  p.halt();
  run(p);
  EXPECT_EQ(bench.checker.count(), 1u);
  EXPECT_NE(first_finding().find("core 0 dma_in"), std::string::npos) << first_finding();
  EXPECT_NE(first_finding().find("overwrites, without waiting for it, what is read by core 0 vpu"),
            std::string::npos)
      << first_finding();
  EXPECT_NE(first_finding().find("bytes 2048..2063 of VMEM of core 0"), std::string::npos)
      << first_finding();
}

TEST_F(CoreCheck, ReadWithoutWaitingIsFoundAndHolesAreNot) {
  ProgramBuilder p;
  // Every other word comes in; the transpose reads words between them, written before.
  spec::FillCommand fill;
  fill.dst = vmem(0), fill.elem_bytes = 4, fill.counts = {1, 1, 1, 1, 64},
  fill.dst_strides = {0, 0, 0, 0, 4};
  p.command(fill, spec::Opcode::kFill, Queue::kDmaIn, Sync().signal(1));
  spec::DmaCommand even;
  even.src = hbm(0, 0), even.dst = vmem(0), even.elem_bytes = 4;
  even.counts = {1, 1, 1, 1, 32}, even.src_strides = {0, 0, 0, 0, 4},
  even.dst_strides = {0, 0, 0, 0, 8};
  p.command(even, spec::Opcode::kDma, Queue::kDmaIn, Sync());
  spec::TransposeCommand odd;
  odd.src = vmem(4), odd.dst = vmem(0x1000), odd.elem_bytes = 4, odd.rows = 32, odd.cols = 1,
  odd.batch = 1;
  odd.src_pitch = 8, odd.dst_pitch = 128;
  p.command(odd, spec::Opcode::kTranspose, Queue::kXlu, Sync().wait(1));
  p.halt();
  run(p);
  EXPECT_EQ(bench.checker.count(), 0u) << first_finding();
  ProgramBuilder q;
  q.command(even, spec::Opcode::kDma, Queue::kDmaIn, Sync());
  odd.src = vmem(0);
  q.command(odd, spec::Opcode::kTranspose, Queue::kXlu, Sync());
  q.halt();
  run(q);
  EXPECT_EQ(bench.checker.count(), 32u);
}

TEST_F(CoreCheck, ReadOfNeverWrittenMemoryIsFound) {
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync().signal(1));
  p.unary_kernel(spec::VpuOp::kAbsF, 0, 0x4000, 1024 + 8, Sync().wait(1));
  p.halt();
  run(p);
  EXPECT_EQ(bench.checker.count(), 1u);
  EXPECT_NE(first_finding().find("nothing has written: bytes 4096..4127 of VMEM"),
            std::string::npos)
      << first_finding();
}

TEST_F(CoreCheck, SequencerLoadsNeedTheWaitToo) {
  ProgramBuilder p;
  p.scalar(spec::ScalarOp::kSts32, 0, 0, 0, 16);
  p.copy(Queue::kDmaIn, hbm(0, 0), smem(0), 8, Sync().signal(1));
  p.scalar(spec::ScalarOp::kLds32, 1, 0, 0, 16);
  p.scalar(spec::ScalarOp::kSwait, 0, 1, 0, 1);
  p.scalar(spec::ScalarOp::kLds32, 1, 0, 0, 0);
  p.halt();
  run(p);
  EXPECT_EQ(bench.checker.count(), 0u) << first_finding();
  ProgramBuilder q;
  q.scalar(spec::ScalarOp::kSts32, 0, 0, 0, 0);
  q.copy(Queue::kDmaIn, hbm(0, 0), smem(0), 8, Sync());
  q.scalar(spec::ScalarOp::kLds32, 1, 0, 0, 0);
  q.halt();
  run(q);
  EXPECT_EQ(bench.checker.count(), 1u);
}

TEST(CoreCheckGang, RemoteWriteIsOrderedByTheRemoteSignalOnly) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}, .check = true});
  const auto run = [&bench](bool waits, uint32_t launch) {
    ProgramBuilder sender;
    sender.li(1, 1);
    sender.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 4096, Sync().signal(1));
    sender.copy(Queue::kDmaRemote, vmem(0), vmem(0x10000), 4096, Sync().wait(1).remote(5, 1), 1);
    sender.halt();
    ProgramBuilder receiver;
    receiver.scalar(spec::ScalarOp::kSwait, 0, 5, 0, 1);
    if (waits) {
      receiver.scalar(spec::ScalarOp::kSsignal, 0, 6, 0, 1);
    }
    receiver.copy(Queue::kDmaOut, vmem(0x10000), hbm(0, 0), 4096, waits ? Sync().wait(6) : Sync());
    receiver.halt();
    for (uint32_t core = 0; core < 2; ++core) {
      bench.bind_slot(core, 0, 0x10000, 4096);
      bench.load(core, core == 0 ? sender.image(1) : receiver.image(1), 1, 3);
      bench.write32(core, CoreBench::kSeq, spec::seq::kLaunch, launch);
    }
    bench.start(0);
    bench.start(1);
    bench.run();
    ASSERT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
  };
  run(true, 1);
  EXPECT_EQ(bench.checker.count(), 0u);
  run(false, 2);  // ordered all the same: issued behind swait
  EXPECT_EQ(bench.checker.count(), 0u) << text_of(bench.checker.findings().front());
}

TEST(CoreCheckGang, WriteIntoAPeerThatStillReadsIsFound) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}, .check = true});
  ProgramBuilder sender;
  sender.li(1, 1);
  spec::FillCommand fill;
  fill.dst = vmem(0), fill.elem_bytes = 4, fill.counts = {1, 1, 1, 1, 1024},
  fill.dst_strides = {0, 0, 0, 0, 4};
  sender.command(fill, spec::Opcode::kFill, Queue::kDmaIn, Sync().signal(1));
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(0x10000), 4096, Sync().wait(1).remote(5, 1), 1);
  sender.copy(Queue::kDmaRemote, vmem(0), vmem(0x10000), 4096, Sync().remote(5, 1),
              1);  // no credit asked for
  sender.halt();
  ProgramBuilder receiver;
  receiver.copy(Queue::kDmaOut, vmem(0x10000), hbm(0, 0), 4096, Sync().wait(5));
  receiver.nop(Queue::kDmaOut, Sync().wait(5));
  receiver.halt();
  for (uint32_t core = 0; core < 2; ++core) {
    bench.bind_slot(core, 0, 0x10000, 4096);
    bench.load(core, core == 0 ? sender.image(1) : receiver.image(1), 1, 3);
  }
  bench.start(0);
  bench.start(1);
  bench.run();
  ASSERT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
  ASSERT_EQ(bench.checker.count(), 1u);
  const std::string text = text_of(bench.checker.findings().front());
  EXPECT_NE(text.find("core 1 dma_out"), std::string::npos) << text;
  EXPECT_NE(text.find("core 0 dma_remote"), std::string::npos) << text;
}

TEST_F(CoreCheck, ReadOfMemoryBoundAsFreshIsFound) {
  const auto read = [this](uint8_t flags) {
    ProgramBuilder p;
    p.copy(Queue::kDmaIn, hbm(0, 64), vmem(0), 64, Sync());
    p.halt();
    slot_flags = flags;
    run(p);
  };
  read(0);
  EXPECT_EQ(bench.checker.count(), 0u) << first_finding();
  read(TPU_SLOT_FLAG_FRESH);
  EXPECT_EQ(bench.checker.count(), 1u);
  EXPECT_NE(first_finding().find("nothing has written: bytes 65600..65663 of HBM of core 0"),
            std::string::npos)
      << first_finding();
}

}  // namespace
}  // namespace tpu::model::test
