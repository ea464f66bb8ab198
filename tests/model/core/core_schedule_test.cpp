// Seeded schedules (--schedule-seed): commands start later by random legal delays. A program that
// orders its accesses has the same bits under every seed, a seed has the same cycles each time, and
// a program that forgets an edge shows it under some seed.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/schedule_delay.hpp"
#include "core_bench.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;
const std::vector<std::string> kOneCore = {"board.chips=1", "board.torus_x=1",
                                           "board.cores_per_chip=1"};
constexpr uint32_t kBytes = 4096;
constexpr uint32_t kBlocks = 6;
constexpr uint32_t kOut = 0x40000;  // of the results in the slot

struct Result {
  std::vector<float> out;
  uint64_t cycles = 0;
};

// Two buffers: loads ahead of kernels ahead of stores. Without `edges` nothing keeps a load from
// the buffer that a kernel reads.
ProgramBuilder pipeline(bool edges) {
  ProgramBuilder p;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const int64_t buffer = (i % 2) * 0x10000;
    Sync in = Sync().signal(1);
    if (i >= 2 && edges) {
      in.wait(2);
    }
    p.copy(Queue::kDmaIn, hbm(0, i * kBytes), vmem(buffer), kBytes, in);
    Sync kernel = Sync().wait(1).signal(3);
    if (i + 2 < kBlocks && edges) {
      kernel.signal(2);
    }
    if (i >= 2) {
      kernel.wait(4);
    }
    p.unary_kernel(spec::VpuOp::kAbsF, buffer, buffer + 0x4000, kBytes / 4, kernel);
    Sync out = Sync().wait(3);
    if (i + 2 < kBlocks) {
      out.signal(4);
    }
    p.copy(Queue::kDmaOut, vmem(buffer + 0x4000), hbm(0, kOut + i * kBytes), kBytes, out);
  }
  p.halt();
  return p;
}

// Boards of several seeds: all are made before the first runs, since SystemC elaborates once.
class CoreSchedule : public ::testing::Test {
 protected:
  void make(const std::vector<uint64_t>& seeds) {
    for (const uint64_t seed : seeds) {
      boards_.push_back(
          std::make_unique<CoreBench>(("board" + std::to_string(boards_.size())).c_str(),
                                      BenchOptions{.overrides = kOneCore, .schedule_seed = seed}));
    }
  }
  Result run(size_t board, bool edges) {
    CoreBench& bench = *boards_.at(board);
    std::vector<float> in(kBlocks * kBytes / 4);
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = -static_cast<float>(i);
    }
    bench.bind_slot(0, 0, kSlot, 1 << 20);
    bench.write(0, CoreBench::kHbm, kSlot, in);
    bench.load(0, pipeline(edges).image(1), 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, ++launch_);
    const uint64_t start = now_cycles();
    bench.start(0);
    bench.run();
    EXPECT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
    Result result;
    result.out = bench.read<float>(0, CoreBench::kHbm, kSlot + kOut, in.size());
    result.cycles = bench.sink.commands.back().cycle - start;
    return result;
  }

 private:
  uint32_t launch_ = 0;
  static constexpr uint64_t kSlot = 0x10000;
  std::vector<std::unique_ptr<CoreBench>> boards_;
};

TEST(ScheduleDelay, IsAFunctionOfItsPlaceAndBelowItsLimit) {
  std::set<uint64_t> seen;
  uint64_t none = 0, most = 0;
  for (uint64_t index = 0; index < 4000; ++index) {
    const ScheduleDelay delay{.seed = 5, .core = 1, .queue = 2, .index = index};
    EXPECT_EQ(delay.cycles(), delay.cycles());
    seen.insert(delay.cycles());
    none += delay.cycles() == 0 ? 1 : 0;
    most = std::max(most, delay.cycles());
  }
  EXPECT_GT(none, 1900u);
  EXPECT_LT(none, 2600u);
  EXPECT_LT(most, ScheduleDelay::kLimit);
  EXPECT_GT(most, ScheduleDelay::kLimit / 2);
  EXPECT_GT(seen.size(), 500u);
}

TEST_F(CoreSchedule, AnOrderedProgramHasTheSameBitsUnderEverySeed) {
  make({0, 1, 2, 3, 4, 5, 6});
  const Result first = run(0, true);
  std::set<uint64_t> cycles = {first.cycles};
  for (size_t board = 1; board <= 6; ++board) {
    const Result result = run(board, true);
    EXPECT_EQ(result.out, first.out) << board;
    EXPECT_GT(result.cycles, first.cycles) << "nothing starts earlier than it could";
    cycles.insert(result.cycles);
  }
  EXPECT_GT(cycles.size(), 4u);
}

TEST_F(CoreSchedule, ASeedHasTheSameCyclesEachTime) {
  make({3, 3, 4});
  const uint64_t cycles = run(0, true).cycles;
  EXPECT_EQ(run(1, true).cycles, cycles);
  EXPECT_NE(run(2, true).cycles, cycles);
}

TEST_F(CoreSchedule, AStepHasTheScheduleOfTheSeedAndItsNumber) {
  make({5, 7});
  std::vector<uint64_t> cycles;
  for (int step = 0; step < 3; ++step) {
    cycles.push_back(run(0, true).cycles);
  }
  EXPECT_NE(cycles[0], cycles[1]);
  EXPECT_EQ(run(1, true).cycles, cycles[2]);
}

TEST_F(CoreSchedule, AForgottenEdgeShowsUnderSomeSeed) {
  make({0, 1, 2, 3, 4, 5, 6});
  const Result right = run(0, true);
  size_t wrong = 0;
  for (size_t board = 1; board <= 6; ++board) {
    wrong += run(board, false).out != right.out ? 1 : 0;
  }
  EXPECT_GT(wrong, 0u);
}

}  // namespace
}  // namespace tpu::model::test
