// One core runs hand-encoded programs: every engine, semaphores between them, data and simulated
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core_bench.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

std::vector<float> pattern(size_t count, uint32_t seed) {
  std::vector<float> data(count);
  for (float& v : data) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int>(seed >> 24) - 128) / 64.0f;  // exact in bf16
  }
  return data;
}

class ScalarSink final : public ProbeSink {
 public:
  void instruction(const InstructionEvent& event) override { instructions.push_back(event); }
  void semaphore(const SemaphoreEvent& event) override { semaphores.push_back(event); }
  std::vector<InstructionEvent> instructions;
  std::vector<SemaphoreEvent> semaphores;
};

TEST(CoreProgram, ScalarInstructionsAndSemaphoresAreEvents) {
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}});
  ScalarSink sink;
  bench.probes.add(sink, {ProbeEvent::kInstruction, ProbeEvent::kSemaphore});
  bench.bind_slot(0, 0, 0x10000, 256);
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 256, Sync().signal(5, 3));
  p.scalar(spec::ScalarOp::kSwait, 0, 5, 0, 3);
  p.halt();
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  const uint64_t visible = bench.traced(0, Queue::kDmaIn).cycle +
                           static_cast<uint64_t>(bench.params.core.semaphore_cycles);
  ASSERT_EQ(sink.semaphores.size(), 2U);
  EXPECT_EQ(sink.semaphores[0].cycle, visible);
  EXPECT_EQ(sink.semaphores[0].semaphore, 5U);
  EXPECT_EQ(sink.semaphores[0].value, 3U);
  EXPECT_EQ(sink.semaphores[1].value, 0U);  // the wait took them
  ASSERT_EQ(sink.instructions.size(), 1U);  // halt tells its end
  EXPECT_EQ(sink.instructions[0].cycle, visible);
}

// x[M,K], w[K,N] come in, y = tanh-free unary (abs) of x*w is transposed and goes out.
TEST(CoreProgram, MatmulKernelTransposeBetweenTransfers) {
  constexpr uint32_t kM = 8, kK = 64, kN = 32;
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}});
  const auto x = pattern(kM * kK, 1);
  const auto w = pattern(kK * kN, 2);
  bench.write(0, CoreBench::kHbm, 0x10000, x);
  bench.write(0, CoreBench::kHbm, 0x20000, w);
  bench.bind_slot(0, 0, 0x10000, x.size() * 4);
  bench.bind_slot(0, 1, 0x20000, w.size() * 4);
  bench.bind_slot(0, 2, 0x30000, kM * kN * 4);
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), kM * kK * 4, Sync().signal(1));
  p.copy(Queue::kDmaIn, hbm(1, 0), vmem(0x10000), kK * kN * 4, Sync().signal(1));
  p.matmul(Queue::kMxu0, 0x20000, 0, 0x10000, kM, kK, kN, Sync().wait(1, 2).signal(2));
  p.unary_kernel(spec::VpuOp::kAbsF, 0x20000, 0x30000, kM * kN, Sync().wait(2).signal(3));
  p.transpose(0x30000, 0x40000, kM, kN, Sync().wait(3).signal(4));
  p.copy(Queue::kDmaOut, vmem(0x40000), hbm(2, 0), kM * kN * 4, Sync().wait(4));
  p.halt();
  bench.load(0, p.image(3), 3, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_TRUE(bench.irqs[0].read());

  const auto y = bench.read<float>(0, CoreBench::kHbm, 0x30000, kM * kN);
  for (size_t m = 0; m < kM; ++m) {
    for (size_t n = 0; n < kN; ++n) {
      double sum = 0;  // all products and sums are exact in f32 for these values
      for (size_t k = 0; k < kK; ++k) {
        sum += static_cast<double>(x[m * kK + k]) * w[k * kN + n];
      }
      ASSERT_EQ(y[n * kM + m], static_cast<float>(std::fabs(sum))) << m << " " << n;
    }
  }

  // Simulated time, command by command.
  const auto& params = bench.params;
  const auto issue = static_cast<uint64_t>(params.core.issue_cycles);
  const auto semaphore = static_cast<uint64_t>(params.core.semaphore_cycles);
  const DoneEvent& in0 = bench.traced(0, Queue::kDmaIn, 0);
  const DoneEvent& in1 = bench.traced(0, Queue::kDmaIn, 1);
  EXPECT_EQ(in0.start, issue);
  EXPECT_EQ(in1.start, 2 * issue);
  // 2 KiB and 8 KiB over 900 GB/s * 85 % at 940 MHz = 813.8 B/cycle: the first alone for 4 cycles
  // (never shared long).
  const DoneEvent& mm = bench.traced(0, Queue::kMxu0);
  EXPECT_EQ(mm.start, std::max(in0.cycle, in1.cycle) + semaphore);
  const auto timing =
      spec::mxu_command_timing(spec::mxu_shape(params), {.rows = kM, .k = kK, .n_inner = kN});
  EXPECT_EQ(mm.cycle, mm.start + timing.done_at);
  const DoneEvent& vpu = bench.traced(0, Queue::kVpu);
  EXPECT_EQ(vpu.start, mm.cycle + semaphore);
  const DoneEvent& xlu = bench.traced(0, Queue::kXlu);
  EXPECT_EQ(xlu.start, vpu.cycle + semaphore);
  EXPECT_EQ(xlu.cycle, xlu.start + std::max(kM, kN) + static_cast<uint64_t>(params.xlu.latency));
  const DoneEvent& out = bench.traced(0, Queue::kDmaOut);
  EXPECT_EQ(out.start, xlu.cycle + semaphore);
  EXPECT_EQ(out.cycle,
            out.start + 2 + bench.cycles(params.dma.out_fixed_ns));  // 1,024 bytes: 2 cycles

  const auto counters = bench.cores[0]->counters();
  EXPECT_EQ(counters[spec::perf::kCommands], 6u);
  EXPECT_EQ(counters[spec::perf::kMxuFlops], 2u * kM * kK * kN);
  EXPECT_EQ(counters[spec::perf::kHbmReadBytes], x.size() * 4 + w.size() * 4);
  EXPECT_EQ(counters[spec::perf::kRunCycles], out.cycle);
}

// Four units of 256 x 256 multiply side by side, each behind its own queue.
TEST(CoreProgram, MatrixUnitsComeFromTheBoard) {
  constexpr uint32_t kM = 8, kK = 256, kN = 256;
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1",
                                 "core.mxus=4", "mxu.rows=256", "mxu.cols=256"}});
  const auto x = pattern(kM * kK, 1);
  const auto w = pattern(kK * kN, 2);
  bench.write(0, CoreBench::kVmem, 0, x);
  bench.write(0, CoreBench::kVmem, 0x10000, w);
  ProgramBuilder p;
  for (const Queue queue : spec::kMxuQueues) {
    const auto unit = spec::kQueues[static_cast<size_t>(queue)].unit;
    p.matmul(queue, 0x80000 + 0x10000 * unit, 0, 0x10000, kM, kK, kN, Sync());
  }
  p.halt();
  bench.load(0, p.image(0), 0, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  const auto timing =
      spec::mxu_command_timing(mxu_shape(bench.params), {.rows = kM, .k = kK, .n_inner = kN});
  const auto counters = bench.cores[0]->counters();
  for (const Queue queue : spec::kMxuQueues) {
    const auto number = static_cast<uint32_t>(queue);
    const auto unit = spec::kQueues[number].unit;
    const auto y = bench.read<float>(0, CoreBench::kVmem, 0x80000 + 0x10000 * unit, kM * kN);
    double sum = 0;  // exact
    for (size_t k = 0; k < kK; ++k) {
      sum += static_cast<double>(x[k]) * w[k * kN + 255];
    }
    EXPECT_EQ(y[255], static_cast<float>(sum)) << spec::kQueueNames[number];
    const DoneEvent& command = bench.traced(0, queue);
    EXPECT_EQ(command.start, (unit + 1u) * static_cast<uint64_t>(bench.params.core.issue_cycles));
    EXPECT_EQ(command.cycle, command.start + timing.done_at);
    EXPECT_EQ(counters[busy_counter(number)], timing.done_at);
    EXPECT_EQ(counters[commands_counter(number)], 1u);
  }
  EXPECT_EQ(counters[spec::perf::kPrograms], 1u);
}

TEST(CoreProgram, TransfersShareBandwidthAndOverlapTheirFixedPart) {
  constexpr uint32_t kBytes = 1 << 20;
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}});
  bench.bind_slot(0, 0, 0x100000, 8 * kBytes);
  ProgramBuilder p;
  for (uint32_t i = 0; i < 2; ++i) {
    p.copy(Queue::kDmaIn, hbm(0, i * kBytes), vmem(i * kBytes), kBytes, Sync());
  }
  p.halt();
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone);
  const DoneEvent& a = bench.traced(0, Queue::kDmaIn, 0);
  const DoneEvent& b = bench.traced(0, Queue::kDmaIn, 1);
  EXPECT_EQ(b.start - a.start, static_cast<uint64_t>(bench.params.core.issue_cycles));
  const double rate = 900.0 * 0.85 * 1000 / 940;
  const double total = 2.0 * kBytes / rate;
  const auto fixed = static_cast<double>(bench.cycles(bench.params.dma.in_fixed_ns));
  EXPECT_NEAR(static_cast<double>(b.cycle - a.start), total + fixed, 2);
  EXPECT_NEAR(static_cast<double>(a.cycle - a.start), total - 4 + fixed, 2);
}

TEST(CoreProgram, LoopWithRegisterAddressesAndFullQueueStalls) {
  constexpr uint32_t kChunks = 100, kBytes = 512;
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1",
                                          "board.cores_per_chip=1", "core.queue_depth=4"}});
  const auto data = pattern(kChunks * kBytes / 4, 3);
  bench.write(0, CoreBench::kHbm, 0x10000, data);
  bench.bind_slot(0, 0, 0x10000, data.size() * 4);
  ProgramBuilder p;
  p.li(1, 0);
  p.li(2, kChunks);
  p.li(3, 0);
  const uint32_t top = p.here();
  p.copy(Queue::kDmaIn, hbm(0, 0, 3), vmem(0x1000, 3), kBytes, Sync());
  p.scalar(spec::ScalarOp::kAddi, 1, 1, 0, 1);
  p.scalar(spec::ScalarOp::kAddi, 3, 3, 0, kBytes);
  p.scalar(spec::ScalarOp::kBlt, 0, 1, 2, static_cast<int32_t>(top));
  p.halt();
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_EQ(bench.read<float>(0, CoreBench::kVmem, 0x1000, data.size()), data);
  // Four in flight, one cycle of data behind a fixed part each: 25 rounds.
  const auto counters = bench.cores[0]->counters();
  const uint64_t fixed = bench.cycles(bench.params.dma.in_fixed_ns);
  EXPECT_GE(counters[spec::perf::kRunCycles], kChunks / 4 * fixed);
  EXPECT_LE(counters[spec::perf::kRunCycles], kChunks / 4 * (fixed + 30));
  EXPECT_GT(counters[spec::perf::kIssueStallCycles], counters[spec::perf::kRunCycles] / 2);
}

TEST(CoreProgram, ScalarMemoryAndSemaphoresOfTheSequencer) {
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}});
  bench.bind_slot(0, 0, 0x10000, 64);
  bench.write(0, CoreBench::kHbm, 0x10000, std::vector<int32_t>{-7, 5});
  ProgramBuilder p;
  p.copy(Queue::kDmaIn, hbm(0, 0), smem(16), 8, Sync().signal(9));
  p.scalar(spec::ScalarOp::kSwait, 0, 9, 0, 1);
  p.scalar(spec::ScalarOp::kLds32, 4, 0, 0, 16);
  p.scalar(spec::ScalarOp::kLds32, 5, 0, 0, 20);
  p.scalar(spec::ScalarOp::kMul, 6, 4, 5);
  p.scalar(spec::ScalarOp::kSts32, 0, 0, 6, 24);
  p.scalar(spec::ScalarOp::kMarkb, 0, 0, 0, 77);
  p.scalar(spec::ScalarOp::kSsignal, 0, 10, 0, 3);
  p.nop(Queue::kXlu, Sync().wait(10, 3));
  p.copy(Queue::kDmaOut, smem(24), hbm(0, 8), 4, Sync());
  p.halt();
  bench.load(0, p.image(1), 1, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  EXPECT_EQ(bench.read<int32_t>(0, CoreBench::kHbm, 0x10008, 1)[0], -35);
  ASSERT_EQ(bench.sink.marks.size(), 1u);
  const DoneEvent& in = bench.traced(0, Queue::kDmaIn);
  // swait, two loads, multiply, store.
  EXPECT_EQ(bench.sink.marks[0].cycle, in.cycle + 1 + 1 + 2 * 4 + 1 + 1);
  EXPECT_EQ(bench.sink.marks[0].source.op_id, 77u);
}

// The sequencer stands at a host call until it is answered; an answer without a call does nothing.
TEST(CoreProgram, HostCallWaitsForItsAnswer) {
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"}});
  ProgramBuilder p;
  for (const int32_t number : {3, 4}) {
    p.scalar(spec::ScalarOp::kHcall, 0, 0, 0, number);
    p.scalar(spec::ScalarOp::kMarkb, 0, 0, 0, number);
  }
  p.halt();
  bench.load(0, p.image(0), 0, 1);
  bench.start(0);
  for (size_t calls = 0; calls < 2; ++calls) {
    bench.run();
    EXPECT_EQ(bench.state(0), spec::seq::kStateRunning);
    EXPECT_TRUE(bench.call_irqs[0].read());
    EXPECT_EQ(bench.read32(0, CoreBench::kSeq, spec::seq::kCall), 3 + calls);
    EXPECT_EQ(bench.sink.marks.size(), calls);
    const auto wait = bench.cores[0]->seq().waits();
    ASSERT_TRUE(wait);
    EXPECT_EQ(wait->what, spec::UnitWait::For::kHost);
    EXPECT_EQ(wait->index, 3u + static_cast<uint32_t>(calls));
    bench.write32(0, CoreBench::kSeq, spec::seq::kAnswer, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kAnswer, 1);  // the first one holds
  }
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateDone);
  EXPECT_FALSE(bench.call_irqs[0].read());
  bench.write32(0, CoreBench::kSeq, spec::seq::kAnswer, 1);
  bench.start(0);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateRunning);
  bench.write32(0, CoreBench::kSeq, spec::seq::kAbort, 1);
  bench.run();
  EXPECT_EQ(bench.state(0), spec::seq::kStateAborted);
  EXPECT_FALSE(bench.call_irqs[0].read());
}

TEST(CoreProgram, MxuPathsReadAsTheBoard) {
  CoreBench bench("board", {.overrides = {"board.chips=1", "board.torus_x=1"}});
  EXPECT_EQ(bench.mxu_paths, (std::vector<std::string>{"board.core0.mxu0", "board.core0.mxu1",
                                                       "board.core1.mxu0", "board.core1.mxu1"}));
}

// The array is so wide that a result takes longer than two commands: whichever of those in flight
// wrote it, the command that accumulates on it waits.
TEST(CoreProgram, AccumulationWaitsForTheResultBehindAnotherCommand) {
  CoreBench bench("board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1",
                                 "mxu.rows=32", "mxu.cols=256"}});
  const auto starts = [&bench](const std::vector<int64_t>& outputs) {
    ProgramBuilder p;
    for (const int64_t out : outputs) {
      p.matmul(Queue::kMxu0, out, 0x8000, 0x10000, 1, 32, 256, Sync(), true);
    }
    p.halt();
    bench.sink.commands.clear();
    bench.load(0, p.image(1), 0, 1);
    bench.start(0);
    bench.run();
    EXPECT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
    return bench.traced(0, Queue::kMxu0, outputs.size() - 1).start -
           bench.traced(0, Queue::kMxu0).start;
  };
  const uint64_t apart = starts({0, 0x1000, 0x2000});
  const uint64_t wait = starts({0, 0});
  EXPECT_GT(wait, apart);
  EXPECT_EQ(starts({0, 0x1000, 0}), wait);
  EXPECT_EQ(starts({0, 0x1000, 0x2000, 0x3000, 0}), wait);
}

}  // namespace
}  // namespace tpu::model::test
