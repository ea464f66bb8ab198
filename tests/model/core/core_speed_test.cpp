// Host cost of an engine command: eight cores, timing only, a loop over every engine with
// semaphores between them. Reports commands a second; asserts only that all commands ran and that
// the simulated time is the same in each run.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "core_bench.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

TEST(CoreSpeed, CommandsPerSecondOfEightCores) {
  constexpr uint32_t kIterations = 3000, kCommands = 7;
  CoreBench bench("board", {.no_data = true, .trace = false});
  ProgramBuilder p;
  p.li(1, 0);
  p.li(2, kIterations);
  p.scalar(spec::ScalarOp::kRid, 3);
  p.scalar(spec::ScalarOp::kXori, 3, 3, 0, 1);
  const uint32_t top = p.here();
  p.copy(Queue::kDmaIn, hbm(0, 0), vmem(0), 16384, Sync().signal(1));
  p.matmul(Queue::kMxu0, 0x20000, 0, 0x10000, 64, 128, 128, Sync().wait(1).signal(2).signal(3));
  p.matmul(Queue::kMxu1, 0x60000, 0, 0x10000, 64, 128, 128, Sync().wait(3).signal(4));
  p.unary_kernel(spec::VpuOp::kAbsF, 0x20000, 0x40000, 4096, Sync().wait(2).signal(5));
  p.transpose(0x40000, 0x50000, 64, 64, Sync().wait(5).wait(4).signal(6));
  p.copy(Queue::kDmaRemote, vmem(0x50000), vmem(0x70000), 16384, Sync().wait(6).remote(7, 3), 3);
  p.copy(Queue::kDmaOut, vmem(0x70000), hbm(0, 16384), 16384, Sync().wait(7));
  p.scalar(spec::ScalarOp::kAddi, 1, 1, 0, 1);
  p.scalar(spec::ScalarOp::kBlt, 0, 1, 2, static_cast<int32_t>(top));
  p.halt();
  const auto image = p.image(1);
  for (uint32_t core = 0; core < 8; ++core) {
    bench.bind_slot(core, 0, 0, 1 << 20);
    bench.load(core, image, 1, 0xff);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t core = 0; core < 8; ++core) {
    bench.start(core);
  }
  bench.quantum = 100'000'000;
  bench.run();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  uint64_t commands = 0;
  for (uint32_t core = 0; core < 8; ++core) {
    ASSERT_EQ(bench.state(core), spec::seq::kStateDone) << bench.cores[core]->fault().text();
    commands += bench.cores[core]->counters()[spec::perf::kCommands];
  }
  EXPECT_EQ(commands, 8u * kIterations * kCommands);
  std::cout << "commands/s: " << static_cast<uint64_t>(static_cast<double>(commands) / seconds)
            << " (" << commands << " commands, "
            << bench.cores[0]->counters()[spec::perf::kRunCycles] << " cycles)\n";
}

}  // namespace
}  // namespace tpu::model::test
