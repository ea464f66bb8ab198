// Data that come as late as they may: whoever looks at memory, changes it or uses it again finds
// what a machine leaves that does all at once.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/deferred_copies.hpp"
#include "core/late_work.hpp"
#include "core_bench.hpp"
#include "kernel/data_order.hpp"
#include "kernel/local_memory.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;

constexpr uint64_t kSlotBase = 1 << 20;
constexpr uint32_t kWords = 16 << 10;
constexpr uint32_t kBytes = 4 * kWords;
constexpr int64_t kA = 0, kB = 1 << 20, kC = 2 << 20;  // in VMEM

using Words = std::vector<int32_t>;

Words words(int32_t first) {
  Words result(kWords);
  std::iota(result.begin(), result.end(), first);
  return result;
}

Words negated(Words of) {
  for (int32_t& word : of) {
    word = -word;
  }
  return of;
}

class CoreLate : public ::testing::Test {
 protected:
  // Negates what lies at kA to kB and sends it to offset 0 of the slot, then waits for nobody.
  static std::vector<uint8_t> stuck() {
    ProgramBuilder program;
    program.unary_kernel(spec::VpuOp::kNegI, kA, kB, kWords, Sync().signal(1));
    program.copy(Queue::kDmaOut, vmem(kB), hbm(0, 0), kBytes, Sync().wait(1));
    program.nop(Queue::kVpu, Sync().wait(9));
    program.halt();
    return program.image(1);
  }
  void launch(const std::vector<uint8_t>& image) {
    bench.bind_slot(0, 0, kSlotBase, 1 << 20);
    bench.load(0, image, 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, ++launches);
    bench.start(0);
  }
  // Until what is to be done is done, in simulated time.
  void launch_stuck(const Words& data) {
    bench.sink.commands.clear();
    bench.write(0, CoreBench::kVmem, kA, data);
    launch(stuck());
    sc_core::sc_start(from_cycles(100'000));
    ASSERT_EQ(bench.sink.commands.size(), 2U);
  }
  Words in_vmem(uint64_t at, uint32_t core = 0) {
    return bench.read<int32_t>(core, CoreBench::kVmem, at, kWords);
  }
  Words in_hbm(uint64_t offset) {
    return bench.read<int32_t>(0, CoreBench::kHbm, kSlotBase + offset, kWords);
  }

  uint32_t launches = 0;
  CoreBench bench{"board",
                  {.overrides = {"board.chips=1", "board.torus_x=1"}, .jobs = JobTime::kLate}};
};

TEST_F(CoreLate, TheHostWritesBehindLateReaders) {
  launch_stuck(words(1));
  bench.write(0, CoreBench::kVmem, kA, words(-500));
  EXPECT_EQ(in_vmem(kB), negated(words(1)));
  bench.write(0, CoreBench::kVmem, kB, words(7));
  EXPECT_EQ(in_hbm(0), negated(words(1)));
}

TEST_F(CoreLate, TheHostWritesBehindLateWriters) {
  launch_stuck(words(1));
  bench.write(0, CoreBench::kHbm, kSlotBase, words(7));
  bench.write(0, CoreBench::kVmem, kB, words(8));
  bench.cores[0]->settle_data();
  EXPECT_EQ(in_hbm(0), words(7));
  EXPECT_EQ(in_vmem(kB), words(8));
}

// As a fault file does.
TEST_F(CoreLate, ABitFlipsBehindWhatHasStarted) {
  launch_stuck(words(1));
  bench.cores[0]->settle_data();
  bench.cores[0]->vmem().data()[kA] ^= 4;
  bench.cores[0]->vmem().data()[kB] ^= 4;
  EXPECT_EQ(in_hbm(0), negated(words(1)));
  EXPECT_EQ(in_vmem(kA)[0], 1 ^ 4);
  EXPECT_EQ(in_vmem(kB)[0], -1 ^ 4);
}

TEST_F(CoreLate, TheNextLaunchStartsBehindOneThatIsAborted) {
  for (const uint32_t end : {spec::seq::kAbort, spec::seq::kReset}) {
    const auto first = static_cast<int32_t>(1000 * (launches + 1));
    launch_stuck(words(first));
    bench.write32(0, CoreBench::kSeq, end, 1);
    bench.run();
    ProgramBuilder next;
    next.copy(Queue::kDmaIn, hbm(0, 0), vmem(kA), kBytes, Sync().signal(1));
    next.unary_kernel(spec::VpuOp::kNegI, kA, kC, kWords, Sync().wait(1).signal(2));
    next.copy(Queue::kDmaOut, vmem(kC), hbm(0, 0), kBytes, Sync().wait(2).signal(3));
    next.nop(Queue::kVpu, Sync().wait(3));
    next.halt();
    launch(next.image(1));
    bench.run();
    ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
    EXPECT_EQ(in_hbm(0), words(first));
    EXPECT_EQ(in_vmem(kA), negated(words(first)));
  }
}

TEST_F(CoreLate, APeerWritesBehindLateReaders) {
  bench.write(0, CoreBench::kVmem, kA, words(100));
  bench.write(1, CoreBench::kVmem, kA, words(1));
  ProgramBuilder reader;
  reader.li(1, 0);
  reader.unary_kernel(spec::VpuOp::kNegI, kA, kB, kWords, Sync().signal(1));
  reader.nop(Queue::kDmaRemote, Sync().wait(1).remote(5, 1));
  reader.unary_kernel(spec::VpuOp::kNegI, kA, kC, kWords, Sync().wait(6).signal(2));
  reader.nop(Queue::kVpu, Sync().wait(2));
  reader.halt();
  ProgramBuilder writer;
  writer.li(1, 1);
  writer.copy(Queue::kDmaRemote, vmem(kA), vmem(kA), kBytes, Sync().wait(5).remote(6, 1).signal(7),
              1);
  writer.nop(Queue::kVpu, Sync().wait(7));
  writer.halt();
  bench.load(0, writer.image(), 0, 3);
  bench.load(1, reader.image(), 0, 3);
  bench.start(0);
  bench.start(1);
  bench.run();
  EXPECT_EQ(bench.state(1), spec::seq::kStateDone) << bench.cores[1]->fault().text();
  EXPECT_EQ(in_vmem(kB, 1), negated(words(1)));
  EXPECT_EQ(in_vmem(kC, 1), negated(words(100)));
}

// Writes a byte.
class ByteJob : public Job {
 public:
  void run_part(int /*part*/) override { *to = 0x55; }
  uint8_t* to = nullptr;
};

TEST(LateLocalMemory, ClearsBehindJobsThatWriteIt) {
  LocalMemory memory("smem", 4096);
  JobPool pool(2, JobTime::kLate);
  ByteJob job;
  job.to = memory.data() + 7;
  DataUses uses;
  uses.add(memory.order(), {.low = 7, .high = 8}, true);
  uses.launch(pool, job);
  ASSERT_FALSE(job.done());
  memory.clear();
  EXPECT_TRUE(job.done());
  EXPECT_EQ(memory.data()[7], 0);
}

class FailingWork : public LateWork {
 public:
  void run_part(int /*part*/) override { throw std::runtime_error("no memory"); }
  void give_back() { ++given_back; }
  int given_back = 0;
};

class LateErrors : public ::testing::TestWithParam<JobTime> {
 protected:
  FailingWork& start(size_t flight) {
    FailingWork& work = works.next();
    pool.launch(work, {});
    works.started(flight);
    return work;
  }

  std::vector<uint8_t> vmem = std::vector<uint8_t>(4096);
  DataOrder order;
  JobPool pool{2, GetParam()};
  DeferredCopies copies{vmem.data(), vmem.size(), order, pool};
  LateWorks<FailingWork> works{pool, copies, 2};
};

TEST_P(LateErrors, ComeOnceAndKeepNoRecord) {
  for (int i = 0; i < 200; ++i) {
    FailingWork& work = start(0);
    const int before = work.given_back;
    pool.wait(work);
    EXPECT_THROW(works.ended(0), std::runtime_error);
    EXPECT_EQ(work.given_back, before + 1);
    EXPECT_NO_THROW(works.settle());
  }
}

TEST_P(LateErrors, OfSeveralComeOnceEach) {
  start(0);
  start(1);
  EXPECT_THROW(works.settle(), std::runtime_error);
  EXPECT_THROW(works.settle(), std::runtime_error);
  EXPECT_NO_THROW(works.settle());
  works.ended(0);
  works.ended(1);
  EXPECT_NO_THROW(works.settle());
}

TEST_P(LateErrors, AreThrownByTheCommandThatTakesTheRecord) {
  const size_t ahead = LateWorks<FailingWork>::kAhead;
  int thrown = 0;
  for (size_t i = 0; i < 4 * ahead; ++i) {
    try {
      start(0);
      works.ended(0);
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  while (thrown < 1000) {
    try {
      works.settle();
      break;
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  EXPECT_GT(thrown, 0);
  EXPECT_LE(thrown, static_cast<int>(4 * ahead)) << "none comes again";
}

INSTANTIATE_TEST_SUITE_P(Pools, LateErrors, ::testing::Values(JobTime::kSoon, JobTime::kLate));

}  // namespace
}  // namespace tpu::model::test
