// Commands whose destination shares bytes with a source, or with itself, fault before anything is
// written, whatever the number of host threads; patterns that only lie between each other run as
// ever. The search for shared bytes against plain enumeration.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "command/stride_pattern.hpp"
#include "core_bench.hpp"
#include "tpu/spec/fault_regs.hpp"

namespace tpu::model::test {
namespace {

using spec::Queue;
using spec::StridePattern;

// Starts of all runs.
std::vector<int64_t> starts(const StridePattern& pattern) {
  std::vector<int64_t> all = {pattern.base()};
  for (const StridePattern::Level& level : pattern.levels()) {
    std::vector<int64_t> next;
    for (int64_t i = 0; i < level.count; ++i) {
      for (const int64_t at : all) {
        next.push_back(at + i * level.stride);
      }
    }
    all = std::move(next);
  }
  return all;
}

// Bytes; `repeated` when some come twice.
std::set<int64_t> bytes_of(const StridePattern& pattern, bool* repeated) {
  std::set<int64_t> bytes;
  *repeated = false;
  for (const int64_t at : starts(pattern)) {
    for (int64_t i = 0; i < pattern.run(); ++i) {
      *repeated = !bytes.insert(at + i).second || *repeated;
    }
  }
  return bytes;
}

TEST(Overlap, SearchEqualsEnumeration) {
  std::mt19937_64 random(11);
  const auto below = [&random](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto make = [&] {
    StridePattern pattern(below(400) - 200, 1 + below(6));
    for (int64_t levels = below(4); levels > 0; --levels) {
      pattern.add(1 + below(5), below(121) - 60);
    }
    return pattern;
  };
  int shared = 0, apart = 0, repeats = 0;
  for (int round = 0; round < 4000; ++round) {
    const StridePattern a = make(), b = make();
    bool repeated_a = false, repeated_b = false;
    const std::set<int64_t> bytes_a = bytes_of(a, &repeated_a), bytes_b = bytes_of(b, &repeated_b);
    bool expected = false;
    for (const int64_t byte : bytes_b) {
      expected = expected || bytes_a.contains(byte);
    }
    ASSERT_EQ(share_bytes(a, b), expected) << "round " << round;
    ASSERT_EQ(repeats_bytes(a), repeated_a) << "round " << round;
    shared += expected ? 1 : 0;
    apart += expected ? 0 : 1;
    repeats += repeated_a ? 1 : 0;
  }
  EXPECT_GT(shared, 500);
  EXPECT_GT(apart, 500);
  EXPECT_GT(repeats, 500);
}

// Blocks of columns of one matrix, billions of bytes: a few steps of the search.
TEST(Overlap, LargeRegularPatternsAreDecidedAtOnce) {
  StridePattern left(0, 64), right(64, 64), wide(0, 65);
  for (StridePattern* pattern : {&left, &right, &wide}) {
    pattern->add(1 << 20, 128);
    pattern->add(1 << 10, int64_t{1} << 30);
  }
  EXPECT_FALSE(share_bytes(left, right));
  EXPECT_TRUE(share_bytes(wide, right));
  EXPECT_FALSE(repeats_bytes(left));
}

// Number of host threads.
class CoreOverlap : public ::testing::TestWithParam<int> {
 protected:
  static constexpr uint64_t kSlot = 0x10000;
  static constexpr uint32_t kSlotBytes = 16 << 20;

  void run(ProgramBuilder& p) {
    p.halt();
    bench.bind_slot(0, 0, kSlot, kSlotBytes);
    bench.load(0, p.image(1), 1, 1);
    bench.write32(0, CoreBench::kSeq, spec::seq::kLaunch, ++launch);
    bench.start(0);
    bench.run();
  }
  void run_ok(ProgramBuilder& p) {
    run(p);
    ASSERT_EQ(bench.state(0), spec::seq::kStateDone) << bench.cores[0]->fault().text();
  }
  // The program's second command, at word `pc`, faults.
  void expect_overlap(const std::string& what, const std::function<void(ProgramBuilder&)>& make) {
    ProgramBuilder p;
    p.nop(Queue::kXlu, Sync());
    const uint32_t pc = p.here();
    make(p);
    const std::vector<uint8_t> before = bench.read<uint8_t>(0, CoreBench::kVmem, 0, 1 << 16);
    run(p);
    const tpu_fault_record_t record = bench.fault_record(0);
    EXPECT_EQ(record.code, TPU_FAULT_DESCRIPTOR) << what;
    EXPECT_EQ(record.detail, spec::fault::kDetailOverlap) << what;
    EXPECT_EQ(record.pc, pc) << what;
    EXPECT_EQ(bench.read<uint8_t>(0, CoreBench::kVmem, 0, 1 << 16), before) << what;
  }
  std::vector<uint32_t> fill_vmem(size_t words) {
    std::vector<uint32_t> data(words);
    for (size_t i = 0; i < words; ++i) {
      data[i] = static_cast<uint32_t>(i * 2654435761U);
    }
    bench.write(0, CoreBench::kVmem, 0, data);
    return data;
  }
  static spec::DmaCommand words(spec::Addr src, spec::Addr dst, uint32_t count) {
    spec::DmaCommand c{};
    c.src = src, c.dst = dst, c.elem_bytes = 4;
    c.counts = {1, 1, 1, 1, count};
    c.src_strides = c.dst_strides = {0, 0, 0, 0, 4};
    return c;
  }
  static void dma(ProgramBuilder& p, const spec::DmaCommand& c, Queue queue = Queue::kDmaIn) {
    p.command(c, spec::Opcode::kDma, queue, Sync());
  }
  uint32_t launch = 0;
  CoreBench bench{"board",
                  {.overrides = {"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1"},
                   .threads = GetParam()}};
};

TEST_P(CoreOverlap, CopiesOntoTheirOwnSourceFault) {
  fill_vmem(1 << 20);
  constexpr uint32_t kMany = (1 << 20) - 2;  // so large that threads share it
  expect_overlap("moved up", [](ProgramBuilder& p) { dma(p, words(vmem(0), vmem(8), kMany)); });
  expect_overlap("moved down", [](ProgramBuilder& p) { dma(p, words(vmem(8), vmem(0), kMany)); });
  expect_overlap("half an element",
                 [](ProgramBuilder& p) { dma(p, words(vmem(0), vmem(4094), 1024)); });
  expect_overlap("backwards", [](ProgramBuilder& p) {
    spec::DmaCommand c = words(vmem(0), vmem(4 * 1023), 1024);
    c.dst_strides[4] = -4;
    dma(p, c);
  });
  expect_overlap("in HBM", [](ProgramBuilder& p) {
    dma(p, words(hbm(0, 0), hbm(0, 1 << 20), kMany), Queue::kDmaOut);
  });
  expect_overlap("remote, to the core itself", [](ProgramBuilder& p) {
    dma(p, words(vmem(0), vmem(64), 1024), Queue::kDmaRemote);
  });
}

TEST_P(CoreOverlap, DestinationsThatRepeatBytesFault) {
  expect_overlap("stride below the element", [](ProgramBuilder& p) {
    spec::DmaCommand c = words(vmem(0), vmem(8192), 16);
    c.dst_strides[4] = 2;
    dma(p, c);
  });
  expect_overlap("rows that meet", [](ProgramBuilder& p) {
    spec::DmaCommand c = words(vmem(0), vmem(8192), 16);
    c.counts[3] = 4, c.src_strides[3] = 64, c.dst_strides[3] = 60;
    dma(p, c);
  });
  expect_overlap("fill", [](ProgramBuilder& p) {
    spec::FillCommand c{};
    c.dst = vmem(0), c.elem_bytes = 4, c.counts = {1, 1, 1, 4, 4};
    c.dst_strides = {0, 0, 0, 4, 4};
    p.command(c, spec::Opcode::kFill, Queue::kDmaIn, Sync());
  });
  expect_overlap("matmul", [](ProgramBuilder& p) {
    spec::MatmulCommand c{};
    c.out = vmem(0), c.lhs = vmem(1 << 16), c.rhs = vmem(1 << 17);
    c.m = {1, 1, 1, 8}, c.m_lhs = {0, 0, 0, 512}, c.m_out = {0, 0, 0, 4};
    c.t = {1, 1, 1}, c.k = {1, 1, 128}, c.k_rhs = {0, 0, 512};
    c.n = {1, 128}, c.n_rhs = c.n_out = {0, 4};
    p.command(c, spec::Opcode::kMatmul, Queue::kMxu0, Sync());
  });
  expect_overlap("transpose", [](ProgramBuilder& p) {
    spec::TransposeCommand c{};
    c.src = vmem(0), c.dst = vmem(1 << 16), c.elem_bytes = 4, c.rows = c.cols = 8, c.batch = 1;
    c.src_pitch = 32, c.dst_pitch = 28;
    p.command(c, spec::Opcode::kTranspose, Queue::kXlu, Sync());
  });
}

TEST_P(CoreOverlap, ResultsOnTheirOperandsFault) {
  expect_overlap("out on lhs", [](ProgramBuilder& p) {
    p.matmul(Queue::kMxu0, 4 * 127, 0, 1 << 16, 8, 128, 128, Sync());
  });
  expect_overlap("out on rhs", [](ProgramBuilder& p) {
    p.matmul(Queue::kMxu0, (1 << 16) - 8, 0, 1 << 16, 8, 128, 128, Sync(), true);
  });
  expect_overlap("transpose in place",
                 [](ProgramBuilder& p) { p.transpose(0, 0, 64, 64, Sync()); });
}

TEST_P(CoreOverlap, IndexedTransfersStayApartByTheirSpan) {
  const auto indexed = [](bool scatter, int64_t indexed_at, int64_t dense_at, int64_t stride) {
    return [=](ProgramBuilder& p) {
      spec::DmaIndexedCommand c{};
      c.src = vmem(scatter ? dense_at : indexed_at);
      c.dst = vmem(scatter ? indexed_at : dense_at);
      c.list = vmem(1 << 17), c.elem_bytes = 4, c.records = 4, c.unit = 64;
      c.counts = {1, 1, 1, 16}, c.src_strides = c.dst_strides = {0, 0, 0, 4};
      c.record_stride = stride, c.span = 4096;
      p.command(c, spec::Opcode::kDmaIndexed, Queue::kDmaIn, Sync(), scatter ? 1 : 0);
    };
  };
  expect_overlap("gather into its table", indexed(false, 0, 4092, 64));
  expect_overlap("scatter of its own span", indexed(true, 0, 2048, 64));
  expect_overlap("gathered records that meet", indexed(false, 0, 1 << 16, 60));
  ProgramBuilder good;  // all records of the list are 0: what is scattered meets, in order
  indexed(true, 0, 1 << 16, 60)(good);
  run_ok(good);
}

TEST_P(CoreOverlap, PatternsBetweenEachOtherRun) {
  constexpr uint32_t kRows = 4096, kRow = 64;  // words; the right half becomes the left one
  std::vector<uint32_t> expected = fill_vmem(kRows * kRow);
  for (size_t row = 0; row < kRows; ++row) {
    std::copy_n(&expected[row * kRow], kRow / 2, &expected[row * kRow + kRow / 2]);
  }
  ProgramBuilder p;
  spec::DmaCommand c = words(vmem(0), vmem(4 * kRow / 2), kRow / 2);
  c.counts[3] = kRows, c.src_strides[3] = c.dst_strides[3] = 4 * kRow;
  dma(p, c);
  run_ok(p);
  EXPECT_EQ(bench.read<uint32_t>(0, CoreBench::kVmem, 0, expected.size()), expected);
}

TEST_P(CoreOverlap, ACopyOntoItselfChangesNothing) {
  const std::vector<uint32_t> data = fill_vmem(1 << 20);
  ProgramBuilder p;
  dma(p, words(vmem(0), vmem(0), 1 << 20));
  dma(p, words(hbm(0, 0), hbm(0, 0), 1 << 20), Queue::kDmaOut);
  run_ok(p);
  EXPECT_EQ(bench.read<uint32_t>(0, CoreBench::kVmem, 0, data.size()), data);
}

INSTANTIATE_TEST_SUITE_P(Threads, CoreOverlap, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace tpu::model::test
