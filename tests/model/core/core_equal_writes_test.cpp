// Transfers of several cores that write the same bytes to the same place of their HBMs: every core
// reads what it wrote, and their HBMs share pages where all of a page is equal; random programs
// against plain memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "core_bench.hpp"
#include "kernel/host_profile.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

constexpr uint64_t kPage = kHbmPageBytes;
constexpr uint32_t kAllCores = 4;
constexpr uint32_t kWords = 256 << 10;  // of HBM and of VMEM, that programs use
constexpr uint64_t kSlotBase = 5 * kPage;

uint64_t shared_bytes() {
  return HostProfile::read()[static_cast<size_t>(HostWork::kShared)].amount;
}

// The memories of a core.
struct Memories {
  std::vector<int32_t> hbm = std::vector<int32_t>(kWords);
  std::vector<int32_t> vmem = std::vector<int32_t>(kWords);
};

// A program that all cores run, on data that are the same on some of them here and there, and what
// it must leave behind.
class Gang {
 public:
  explicit Gang(uint32_t seed) : random_(seed) {
    for (uint32_t core = 0; core < kAllCores; ++core) {
      std::iota(cores[core].vmem.begin(), cores[core].vmem.end(), 1000);
    }
    for (int i = 0; i < 6; ++i) {
      Memories& core = cores[random_() % kAllCores];
      const Span odd = span(1, 40'000);
      std::fill_n(core.vmem.begin() + odd.at, odd.count, static_cast<int32_t>(i) - 2);
    }
  }

  // What the queue itself orders waits for nothing.
  void add() {
    const auto kind = random_() % 10;
    const bool of_queue = kind < 7;
    Sync sync;
    if (!of_queue || last_ != Queue::kDmaOut) {
      wait_for_all(sync);
    }
    last_ = of_queue ? Queue::kDmaOut : kind < 9 ? Queue::kDmaIn : Queue::kVpu;
    if (kind < 5) {
      send(sync);
    } else if (kind == 5) {
      move_in_hbm(sync);
    } else if (kind == 6) {
      fill(sync);
    } else if (kind < 9) {
      bring(sync);
    } else {
      negate(sync);
    }
  }
  void finish() {
    Sync sync;
    wait_for_all(sync);
    program.nop(Queue::kVpu, sync);
    program.halt();
  }

  ProgramBuilder program;
  std::vector<Memories> cores = std::vector<Memories>(kAllCores);

 private:
  // Of words.
  struct Span {
    uint32_t at, count;
  };
  Span span(uint32_t least, uint32_t most) {
    constexpr uint32_t kStep = 4096;  // a quarter of a page
    const uint32_t count = std::max<uint32_t>(
        static_cast<uint32_t>(least + random_() % (most - least)) / kStep * kStep, kStep);
    return {static_cast<uint32_t>(random_() % ((kWords - count) / kStep)) * kStep, count};
  }
  uint32_t beside(const Span& span) {
    for (;;) {
      const uint32_t at = this->span(span.count, span.count + 1).at;
      if (at + span.count <= span.at || span.at + span.count <= at) {
        return at;
      }
    }
  }
  // Signals what was there before in the queue, and waits for it.
  void wait_for_all(Sync& sync) {
    ++signals_;
    program.nop(last_, Sync().signal(signals_));
    sync.wait(signals_);
  }
  void send(const Sync& sync) {
    const Span from = span(4096, 80'000);
    const uint32_t to = random_() % 2 == 0 ? from.at : span(from.count, from.count + 1).at;
    program.copy(Queue::kDmaOut, vmem(4 * int64_t{from.at}), hbm(0, 4 * int64_t{to}),
                 4 * from.count, sync);
    for (Memories& core : cores) {
      std::copy_n(core.vmem.begin() + from.at, from.count, core.hbm.begin() + to);
    }
  }
  void bring(const Sync& sync) {
    const Span from = span(4096, 60'000);
    const uint32_t to = span(from.count, from.count + 1).at;
    program.copy(Queue::kDmaIn, hbm(0, 4 * int64_t{from.at}), vmem(4 * int64_t{to}), 4 * from.count,
                 sync);
    for (Memories& core : cores) {
      std::copy_n(core.hbm.begin() + from.at, from.count, core.vmem.begin() + to);
    }
  }
  void move_in_hbm(const Sync& sync) {
    const Span from = span(4096, 40'000);
    const uint32_t to = beside(from);
    program.copy(Queue::kDmaOut, hbm(0, 4 * int64_t{from.at}), hbm(0, 4 * int64_t{to}),
                 4 * from.count, sync);
    for (Memories& core : cores) {
      std::copy_n(core.hbm.begin() + from.at, from.count, core.hbm.begin() + to);
    }
  }
  void fill(const Sync& sync) {
    const Span to = span(4096, 40'000);
    spec::FillCommand c;
    c.dst = hbm(0, 4 * int64_t{to.at});
    c.elem_bytes = 4;
    c.counts = {1, 1, 1, 1, to.count};
    c.dst_strides = {0, 0, 0, 0, 4};
    c.pattern = random_() % 2;
    program.command(c, spec::Opcode::kFill, Queue::kDmaOut, sync);
    for (Memories& core : cores) {
      std::fill_n(core.hbm.begin() + to.at, to.count, static_cast<int32_t>(c.pattern));
    }
  }
  void negate(const Sync& sync) {
    const Span at = span(4096, 20'000);
    program.unary_kernel(spec::VpuOp::kNegI, 4 * int64_t{at.at}, 4 * int64_t{at.at}, at.count,
                         sync);
    for (Memories& core : cores) {
      std::transform(core.vmem.begin() + at.at, core.vmem.begin() + at.at + at.count,
                     core.vmem.begin() + at.at, [](int32_t value) { return -value; });
    }
  }

  std::mt19937 random_;
  Queue last_ = Queue::kDmaOut;  // of the last command
  uint8_t signals_ = 0;
};

void run_gang(CoreBench& bench, ProgramBuilder& program) {
  const auto image = program.image(1);
  for (uint32_t core = 0; core < kAllCores; ++core) {
    bench.bind_slot(core, 0, kSlotBase, 4 * uint64_t{kWords});
    bench.load(core, image, 1, (1U << kAllCores) - 1);
    bench.write32(core, CoreBench::kSeq, spec::seq::kLaunch, 1);
  }
  for (uint32_t core = 0; core < kAllCores; ++core) {
    bench.start(core);
  }
  bench.run();
  for (uint32_t core = 0; core < kAllCores; ++core) {
    ASSERT_EQ(bench.state(core), spec::seq::kStateDone)
        << bench.fault_record(core).detail << " op " << bench.fault_record(core).op_id << " code "
        << bench.fault_record(core).code;
  }
}

class CoreEqualWrites : public ::testing::TestWithParam<uint32_t> {};

// Seeds differ in the number of threads, and half of them have data come late. Every second one
// lets commands start late at random, so that cores write at the same time, one after the other,
// and in any order.
TEST_P(CoreEqualWrites, RandomProgramsReadWhatTheyWrote) {
  HostProfile::enable();
  const uint32_t seed = GetParam();
  CoreBench bench("board", {.overrides = {"board.chips=2", "board.torus_x=2"},
                            .threads = 1 + static_cast<int>(seed % 3),
                            .jobs = seed % 4 < 2 ? JobTime::kLate : JobTime::kSoon,
                            .schedule_seed = seed % 2 == 0 ? seed + 1 : 0});
  Gang gang(seed);
  for (uint32_t core = 0; core < kAllCores; ++core) {
    bench.write(core, CoreBench::kVmem, 0, gang.cores[core].vmem);
  }
  const uint64_t before = shared_bytes();
  for (int i = 0; i < 60; ++i) {
    gang.add();
  }
  gang.finish();
  run_gang(bench, gang.program);
  for (uint32_t core = 0; core < kAllCores; ++core) {
    EXPECT_EQ(bench.read<int32_t>(core, CoreBench::kHbm, kSlotBase, kWords), gang.cores[core].hbm)
        << "HBM of core " << core;
    EXPECT_EQ(bench.read<int32_t>(core, CoreBench::kVmem, 0, kWords), gang.cores[core].vmem)
        << "VMEM of core " << core;
  }
  EXPECT_GT(shared_bytes() - before, 8 * kPage);
}

// Zeros take no memory of the host: those of the core that writes them first, of the cores that
// follow it, and of fills; by transfers in parts, too.
TEST_P(CoreEqualWrites, PagesOfZerosAreDropped) {
  constexpr uint32_t kPages = 6;
  const uint32_t seed = GetParam();
  CoreBench bench("board", {.overrides = {"board.chips=2", "board.torus_x=2"},
                            .threads = 1 + static_cast<int>(seed % 3),
                            .jobs = seed % 4 < 2 ? JobTime::kLate : JobTime::kSoon,
                            .schedule_seed = seed % 2 == 0 ? seed + 1 : 0});
  for (uint32_t core = 0; core < kAllCores; ++core) {
    bench.write(core, CoreBench::kHbm, kSlotBase,
                std::vector<int32_t>(2 * kPages * kPage / 4, static_cast<int32_t>(core) + 1));
  }
  ASSERT_EQ(bench.pages.pages_in_use(), 2 * kPages * kAllCores);
  ProgramBuilder program;
  program.copy(Queue::kDmaOut, vmem(0), hbm(0, 0), kPages * kPage, Sync());
  spec::FillCommand fill;
  fill.dst = hbm(0, kPages * kPage);
  fill.elem_bytes = 4;
  fill.counts = {1, 1, 1, 1, kPages * kPage / 4};
  fill.dst_strides = {0, 0, 0, 0, 4};
  program.command(fill, spec::Opcode::kFill, Queue::kDmaOut, Sync().signal(1));
  program.nop(Queue::kVpu, Sync().wait(1));
  program.halt();
  run_gang(bench, program);
  EXPECT_EQ(bench.read<int32_t>(3, CoreBench::kHbm, kSlotBase, 2 * kPages * kPage / 4),
            std::vector<int32_t>(2 * kPages * kPage / 4));
  EXPECT_EQ(bench.pages.pages_in_use(), 1U) << "that of the program, which all cores share";
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoreEqualWrites, ::testing::Range(0U, 24U));

}  // namespace
}  // namespace tpu::model::test
