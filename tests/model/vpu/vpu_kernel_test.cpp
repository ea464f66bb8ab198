// VPU kernels as programs use them: masks, store modes, accumulators in sections, splitting,
// cycles. Expected values come from host arithmetic written beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "board/board_loader.hpp"
#include "vpu_builder.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kMinusInf = 0xff800000u;

float read_f32(const std::vector<uint8_t>& vmem, size_t offset) {
  float value;
  std::memcpy(&value, vmem.data() + offset, 4);
  return value;
}

void write_f32(std::vector<uint8_t>& vmem, size_t offset, float value) {
  std::memcpy(vmem.data() + offset, &value, 4);
}

std::vector<uint8_t> matrix_memory(uint32_t elements, uint64_t seed) {
  std::vector<uint8_t> vmem(1 << 20, 0xee);
  Random random(seed);
  for (uint32_t i = 0; i < elements; ++i) {
    write_f32(vmem, 4 * i, static_cast<float>(static_cast<int>(random.below(4001)) - 2000) / 128);
  }
  return vmem;
}

void run(const KernelBuilder& b, std::vector<uint8_t>& vmem) {
  const VpuProgram program = b.program();
  const VpuKernel kernel = b.kernel(program);
  ASSERT_EQ(kernel.check(vmem.size()), "");
  kernel.run(vmem.data());
}

TEST(VpuKernel, TailLanesLeaveMemoryAlone) {
  constexpr uint32_t kRows = 11, kCols = 131;
  KernelBuilder b;
  b.shape(kRows, kCols, 0, 1);
  const uint32_t in = b.matrix(0, Elem::kF32);
  // The result has gaps of 5 elements between rows.
  constexpr int kPitch = (kCols + 5) * 4;
  const uint32_t out = b.access(0x40000, Elem::kF32, {8 * kPitch, 512, 0, 0}, kPitch, 4);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
  b.add(Section::kBody, VpuOp::kAddF, 0, 0, 0);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
  std::vector<uint8_t> vmem = matrix_memory(kRows * kCols, 1);
  const std::vector<uint8_t> before = vmem;
  run(b, vmem);
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t c = 0; c < kCols + 5; ++c) {
      const size_t at = 0x40000 + r * kPitch + c * 4;
      if (c < kCols) {
        ASSERT_EQ(read_f32(vmem, at), 2 * read_f32(before, (r * kCols + c) * 4)) << r << ' ' << c;
        std::memset(vmem.data() + at, 0xee, 4);
      }
    }
  }
  EXPECT_TRUE(vmem == before);  // nothing else was written
}

// Rows that are as far apart as those of a register, and shorter: what is between them stays.
TEST(VpuKernel, ShortRowsLeaveMemoryAlone) {
  constexpr uint32_t kCols = 64;
  constexpr int kPitch = kVpuLanes * 4;
  for (uint32_t tail = 1; tail <= kVpuSublanes; ++tail) {
    const uint32_t rows = 2 * kVpuSublanes + tail;
    KernelBuilder b;
    b.shape(rows, kCols, 0, 1);
    const uint32_t in = b.access(0, Elem::kF32, {8 * kPitch, 512, 0, 0}, kPitch, 4);
    const uint32_t out = b.access(0x40000, Elem::kF32, {8 * kPitch, 512, 0, 0}, kPitch, 4);
    b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
    b.add(Section::kBody, VpuOp::kAddF, 1, 0, 0);
    b.add(Section::kBody, VpuOp::kMulF, 1, 1, 0);
    b.add(Section::kBody, VpuOp::kStore, 0, 1, 0, out);
    std::vector<uint8_t> vmem = matrix_memory(rows * kVpuLanes, rows);
    std::vector<uint8_t> expected = vmem;
    run(b, vmem);
    const VpuProgram program = b.program();
    b.machine(program, expected.data()).run();
    EXPECT_TRUE(vmem == expected) << rows << " rows";
  }
}

// A register keeps what it has loaded when a store changes that memory: in place, one lane further,
// and by a store of the loaded register itself; for full blocks and for tails.
TEST(VpuKernel, RegistersKeepWhatWasLoaded) {
  for (const uint32_t elements : {1024u, 2048u, 3000u}) {
    for (const int64_t shift : {-4, 0, 4, 128}) {
      for (int form = 0; form < 3; ++form) {
        KernelBuilder b;
        b.flat(elements);
        const uint32_t in = b.vector(4096, Elem::kI32);
        const uint32_t shifted = b.vector(4096 + shift, Elem::kI32);
        const uint32_t out = b.vector(0x20000, Elem::kI32);
        b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
        if (form == 0) {  // stored while it is still read
          b.add(Section::kBody, VpuOp::kNegI, 1, 0);
          b.add(Section::kBody, VpuOp::kStore, 0, 1, 0, shifted);
          b.add(Section::kBody, VpuOp::kAddI, 2, 0, 1);
          b.add(Section::kBody, VpuOp::kStore, 0, 2, 0, out);
        } else if (form == 1) {  // moved
          b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, shifted);
        } else {  // the result takes the register's place
          b.add(Section::kBody, VpuOp::kNegI, 0, 0);
          b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, shifted);
          b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, in);
        }
        std::vector<uint8_t> vmem = matrix_memory(8192, elements);
        std::vector<uint8_t> expected = vmem;
        run(b, vmem);
        const VpuProgram program = b.program();
        b.machine(program, expected.data()).run();
        EXPECT_TRUE(vmem == expected)
            << elements << " elements, shift " << shift << ", form " << form;
      }
    }
  }
}

// A register keeps what was stored from it when that memory, or some words beside it, is written
// again before the register is read for the last time.
TEST(VpuKernel, RegistersKeepWhatWasStored) {
  for (const uint32_t elements : {1024u, 2048u, 3000u}) {
    for (const int64_t shift : {-4, 0, 4, 128}) {
      KernelBuilder b;
      b.flat(elements);
      const uint32_t in = b.vector(0x40000, Elem::kI32);
      const uint32_t first = b.vector(4096, Elem::kI32);
      const uint32_t second = b.vector(4096 + shift, Elem::kI32);
      const uint32_t sum = b.vector(0x20000, Elem::kI32);
      b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
      b.add(Section::kBody, VpuOp::kNegI, 1, 0);
      b.add(Section::kBody, VpuOp::kStore, 0, 1, 0, first);
      b.add(Section::kBody, VpuOp::kAbsI, 2, 0);
      b.add(Section::kBody, VpuOp::kAddI, 3, 1, 2);
      b.add(Section::kBody, VpuOp::kStore, 0, 2, 0, second);
      b.add(Section::kBody, VpuOp::kStore, 0, 3, 0, sum);
      std::vector<uint8_t> vmem = matrix_memory(0x40000 / 4 + 4096, 1);
      std::vector<uint8_t> expected = vmem;
      run(b, vmem);
      const VpuProgram program = b.program();
      b.machine(program, expected.data()).run();
      EXPECT_TRUE(vmem == expected) << elements << " elements, shift " << shift;
    }
  }
}

// Loads that find their bytes elsewhere: in place, with tails, interpreted and fused; stores go
// where they always went.
TEST(VpuKernel, LoadsFollowTheirShifts) {
  for (const uint32_t elements : {900u, 1024u, 3000u, 8192u}) {
    KernelBuilder b;
    b.flat(elements);
    const uint32_t in = b.vector(4096, Elem::kI32);
    const uint32_t out = b.vector(4096, Elem::kI32);
    const uint32_t copy = b.vector(0x20000, Elem::kI32);
    b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
    b.add(Section::kBody, VpuOp::kNegI, 1, 0);
    b.add(Section::kBody, VpuOp::kStore, 0, 1, 0, out);
    b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, copy);
    const std::vector<uint8_t> before = matrix_memory(0x20000 / 4 + 16384, 1);
    std::vector<uint8_t> expected = before;
    run(b, expected);
    std::vector<uint8_t> vmem = before;
    std::vector<uint8_t> elsewhere(before.begin() + 4096, before.begin() + 4096 + 8192 * 4 + 4096);
    std::fill_n(vmem.begin() + 4096, 4 * elements, uint8_t{0xee});
    const VpuProgram program = b.program();
    const VpuKernel kernel = b.kernel(program);
    ASSERT_TRUE(kernel.loads_before_stores());
    const std::vector<int64_t> shifts = {
        reinterpret_cast<intptr_t>(elsewhere.data()) - reinterpret_cast<intptr_t>(&vmem[4096]), 0,
        0};
    std::vector<uint8_t> parts = vmem;
    kernel.run(vmem.data(), vpu_best_simd(), shifts);
    EXPECT_TRUE(vmem == expected) << elements << " elements";
    std::vector<int64_t> of_parts = shifts;
    of_parts[0] += vmem.data() - parts.data();
    for (uint64_t i = 0; i < kernel.split_count(); ++i) {
      kernel.run_range(parts.data(), i, i + 1, vpu_best_simd(), of_parts);
    }
    EXPECT_TRUE(parts == expected) << elements << " elements, in parts";
  }
}

TEST(VpuKernel, LoadsThatSeeStoresAreTold) {
  const auto before = [](int64_t from, int64_t to, int32_t step, bool load_first, bool one_access) {
    KernelBuilder b;
    b.flat(4096);
    const uint32_t in = b.vector(from, Elem::kI32);
    const uint32_t out = one_access ? in : b.vector(to, Elem::kI32);
    b.accesses[out].loop[3] = step;
    if (load_first) {
      b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
    } else {
      b.add(Section::kBody, VpuOp::kImm, 0, 0, 0, 7);
    }
    b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
    if (!load_first) {
      b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
    }
    const VpuProgram program = b.program();
    return b.kernel(program).loads_before_stores();
  };
  EXPECT_TRUE(before(4096, 4096, 4096, true, false));
  EXPECT_TRUE(before(4096, 0x40000, 4096, false, false));  // apart
  EXPECT_FALSE(before(4096, 4096, 4096, false, false));    // stored before
  EXPECT_FALSE(before(4096, 4100, 4096, true, false));     // one lane on
  EXPECT_FALSE(before(4096, 4096, 0, true, false));        // always to one block
  EXPECT_FALSE(before(4096, 4096, 4096, true, true));      // one access: a shift moves both
}

TEST(VpuKernel, StoreModesWriteTheirLanesOnly) {
  for (uint32_t mode = 0; mode < spec::kVpuStoreModeCount; ++mode) {
    KernelBuilder b;
    b.command.rows = 3;
    b.command.cols = 5;
    const uint32_t out = b.access(0, Elem::kI8, {}, 128, 1);
    b.add(Section::kBody, VpuOp::kImm, 0, 0, 0, 0x101);
    b.add(Section::kBody, VpuOp::kStore, 0, 0, static_cast<int>(mode), out);
    std::vector<uint8_t> vmem(4096);
    run(b, vmem);
    for (uint32_t s = 0; s < 8; ++s) {
      for (uint32_t l = 0; l < 128; ++l) {
        const auto m = static_cast<spec::VpuStoreMode>(mode);
        const bool sublane = m == spec::VpuStoreMode::kAll || m == spec::VpuStoreMode::kLane0;
        const bool lane = m == spec::VpuStoreMode::kAll || m == spec::VpuStoreMode::kSublane0;
        const bool written = s < (sublane ? 3u : 1u) && l < (lane ? 5u : 1u);
        ASSERT_EQ(vmem[s * 128 + l], written ? 1 : 0) << mode << ' ' << s << ' ' << l;
      }
    }
  }
}

// sum over rows of each column: columns outside, rows inside, accumulator in r0.
KernelBuilder column_sums(uint32_t rows, uint32_t cols) {
  KernelBuilder b;
  b.shape(rows, cols, 3, 2);
  const uint32_t in = b.matrix(0, Elem::kF32);
  const uint32_t out = b.access(0x80000, Elem::kF32, {0, 0, 512, 0}, 0, 4);
  b.add(Section::kEnter2, VpuOp::kImm, 0, 0, 0, 0);
  b.add(Section::kBody, VpuOp::kLoad, 1, 0, 0, in);
  b.add(Section::kBody, VpuOp::kAddF, 0, 0, 1);
  b.add(Section::kLeave2, VpuOp::kSred, 0, 0, 0, static_cast<uint32_t>(spec::VpuReduce::kAddF));
  b.add(Section::kLeave2, VpuOp::kStore, 0, 0, static_cast<int>(spec::VpuStoreMode::kSublane0),
        out);
  return b;
}

TEST(VpuKernel, SumsColumns) {
  constexpr uint32_t kRows = 21, kCols = 300;
  std::vector<uint8_t> vmem = matrix_memory(kRows * kCols, 2);
  run(column_sums(kRows, kCols), vmem);
  for (uint32_t c = 0; c < kCols; ++c) {
    double sum = 0;  // multiples of 1/128: exact in f32 in any order
    for (uint32_t r = 0; r < kRows; ++r) {
      sum += static_cast<double>(read_f32(vmem, (r * kCols + c) * 4));
    }
    ASSERT_EQ(static_cast<double>(read_f32(vmem, 0x80000 + 4 * c)), sum) << c;
  }
}

TEST(VpuKernel, SoftmaxOfRows) {
  constexpr uint32_t kRows = 13, kCols = 10;
  KernelBuilder b;
  b.shape(kRows, kCols, 0, 3);
  b.command.col_loop = 255;
  const uint32_t in = b.access(0, Elem::kF32, {8 * kCols * 4, 0, 0, 0}, kCols * 4, 4);
  const uint32_t out = b.access(0x8000, Elem::kF32, {8 * kCols * 4, 0, 0, 0}, kCols * 4, 4);
  const auto reduction = [](spec::VpuReduce r) { return static_cast<uint32_t>(r); };
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
  b.add(Section::kBody, VpuOp::kMaskid, 1, 0, 0, kMinusInf);
  b.add(Section::kBody, VpuOp::kLred, 2, 1, 0, reduction(spec::VpuReduce::kMaxF));
  b.add(Section::kBody, VpuOp::kSubF, 0, 0, 2);
  b.add(Section::kBody, VpuOp::kExpF, 0, 0);
  b.add(Section::kBody, VpuOp::kMaskid, 1, 0, 0, 0);
  b.add(Section::kBody, VpuOp::kLred, 1, 1, 0, reduction(spec::VpuReduce::kAddF));
  b.add(Section::kBody, VpuOp::kDivF, 0, 0, 1);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
  std::vector<uint8_t> vmem = matrix_memory(kRows * kCols, 3);
  run(b, vmem);
  for (uint32_t r = 0; r < kRows; ++r) {
    double largest = -1e9, sum = 0;
    for (uint32_t c = 0; c < kCols; ++c) {
      largest = std::max(largest, static_cast<double>(read_f32(vmem, (r * kCols + c) * 4)));
    }
    for (uint32_t c = 0; c < kCols; ++c) {
      sum += std::exp(static_cast<double>(read_f32(vmem, (r * kCols + c) * 4)) - largest);
    }
    for (uint32_t c = 0; c < kCols; ++c) {
      const double x = static_cast<double>(read_f32(vmem, (r * kCols + c) * 4));
      const double expected = std::exp(x - largest) / sum;
      // exp 1 ulp, sum of ten terms 4 roundings and 1 ulp each, quotient 0.5: under 8 * 2^-24.
      const double got = static_cast<double>(read_f32(vmem, 0x8000 + (r * kCols + c) * 4));
      ASSERT_NEAR(got, expected, expected * 8 / 16777216.0) << r << ' ' << c;
    }
  }
}

TEST(VpuKernel, FlatSumUsesAllSections) {
  constexpr uint32_t kElements = 5000;
  KernelBuilder b;
  b.flat(kElements);
  const uint32_t in = b.vector(0, Elem::kF32);
  const uint32_t out = b.access(0x80000, Elem::kF32, {}, 0, 4);
  b.add(Section::kPre, VpuOp::kImm, 0, 0, 0, 0);
  b.add(Section::kBody, VpuOp::kLoad, 1, 0, 0, in);
  b.add(Section::kBody, VpuOp::kAddF, 0, 0, 1);
  b.add(Section::kPost, VpuOp::kLred, 0, 0, 0, static_cast<uint32_t>(spec::VpuReduce::kAddF));
  b.add(Section::kPost, VpuOp::kSred, 0, 0, 0, static_cast<uint32_t>(spec::VpuReduce::kAddF));
  b.add(Section::kPost, VpuOp::kStore, 0, 0, static_cast<int>(spec::VpuStoreMode::kElement0), out);
  std::vector<uint8_t> vmem = matrix_memory(kElements, 4);
  run(b, vmem);
  double sum = 0;
  for (uint32_t i = 0; i < kElements; ++i) {
    sum += static_cast<double>(read_f32(vmem, 4 * i));
  }
  EXPECT_EQ(static_cast<double>(read_f32(vmem, 0x80000)), sum);
}

TEST(VpuKernel, BroadcastAndStridedLanes) {
  KernelBuilder b;
  b.shape(9, 20, 0, 3);
  b.command.col_loop = 255;
  const uint32_t row = b.access(0, Elem::kF32, {}, 0, 4);                   // a row vector
  const uint32_t column = b.access(256, Elem::kF32, {32, 0, 0, 0}, 4, 0);   // a column vector
  const uint32_t out = b.access(0x1000, Elem::kF32, {32, 0, 0, 0}, 4, 36);  // transposed
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, row);
  b.add(Section::kBody, VpuOp::kLoad, 1, 0, 0, column);
  b.add(Section::kBody, VpuOp::kAddF, 0, 0, 1);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
  std::vector<uint8_t> vmem = matrix_memory(200, 5);
  run(b, vmem);
  for (uint32_t r = 0; r < 9; ++r) {
    for (uint32_t c = 0; c < 20; ++c) {
      ASSERT_EQ(read_f32(vmem, 0x1000 + 36 * c + 4 * r),
                read_f32(vmem, 4 * c) + read_f32(vmem, 256 + 4 * r));
    }
  }
}

TEST(VpuKernel, ZeroCountDoesNothing) {
  KernelBuilder b;
  b.flat(1024);
  b.command.loops[1] = 0;
  const uint32_t out = b.vector(0, Elem::kF32);
  b.add(Section::kPre, VpuOp::kImm, 0, 0, 0, 7);
  b.add(Section::kPre, VpuOp::kStore, 0, 0, 0, out);
  std::vector<uint8_t> vmem(8192);
  run(b, vmem);
  EXPECT_EQ(vmem, std::vector<uint8_t>(8192));
  const spec::BoardParams params = spec::load_board("v3_8");
  const VpuProgram program = b.program();
  EXPECT_EQ(spec::vpu_cycles(params, b.command, b.accesses, program.sections()).free_at,
            static_cast<uint64_t>(params.vpu.kernel_start_cycles));
}

// ---- splitting
KernelBuilder elementwise(int64_t out_base, uint32_t elements) {
  KernelBuilder b;
  b.flat(elements);
  const uint32_t in = b.vector(0, Elem::kF32);
  const uint32_t out = b.vector(out_base, Elem::kF32);
  b.add(Section::kPre, VpuOp::kImm, 1, 0, 0, 0x40000000u);
  b.add(Section::kBody, VpuOp::kLoad, 0, 0, 0, in);
  b.add(Section::kBody, VpuOp::kMulF, 0, 0, 1);
  b.add(Section::kBody, VpuOp::kStore, 0, 0, 0, out);
  return b;
}

bool can_split(const KernelBuilder& b) {
  const VpuProgram program = b.program();
  return b.kernel(program).can_split();
}

TEST(VpuKernel, SplitsIndependentIterationsOnly) {
  EXPECT_TRUE(can_split(elementwise(0x10000, 5000)));
  EXPECT_TRUE(can_split(elementwise(0, 5000)));      // in place
  EXPECT_FALSE(can_split(elementwise(2048, 5000)));  // reads what another iteration writes
  EXPECT_TRUE(can_split(column_sums(21, 300)));      // accumulators within an iteration

  KernelBuilder carried = elementwise(0x10000, 5000);
  carried.add(Section::kBody, VpuOp::kAddF, 1, 1, 1);
  EXPECT_FALSE(can_split(carried));
  KernelBuilder post = elementwise(0x10000, 5000);
  post.add(Section::kPost, VpuOp::kMov, 2, 0);
  EXPECT_FALSE(can_split(post));
  KernelBuilder same_place = elementwise(0x10000, 5000);
  same_place.accesses[1].loop = {};
  EXPECT_FALSE(can_split(same_place));
}

TEST(VpuKernel, RangesMakeTheWhole) {
  const KernelBuilder b = column_sums(21, 300);
  const VpuProgram program = b.program();
  const VpuKernel kernel = b.kernel(program);
  std::vector<uint8_t> whole = matrix_memory(21 * 300, 6);
  std::vector<uint8_t> parts = whole;
  kernel.run(whole.data());
  ASSERT_EQ(kernel.split_count(), 3u);
  kernel.run_range(parts.data(), 2, 3);
  kernel.run_range(parts.data(), 0, 2);
  EXPECT_TRUE(whole == parts);
}

TEST(VpuKernel, RangesMayRunInParallel) {
  const KernelBuilder b = elementwise(0x80000, 100 * 1024);
  const VpuProgram program = b.program();
  const VpuKernel kernel = b.kernel(program);
  std::vector<uint8_t> whole = matrix_memory(100 * 1024, 7);
  std::vector<uint8_t> parts = whole;
  ASSERT_EQ(kernel.check(whole.size()), "");
  kernel.run(whole.data());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back(
        [&, t] { kernel.run_range(parts.data(), t * 25, (t + 1) * 25, vpu_best_simd()); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(whole == parts);
}

// ---- cycles
void expect_cycles(const KernelBuilder& b, uint64_t section_cycles, uint64_t latency) {
  const spec::BoardParams params = spec::load_board("v3_8");
  const VpuProgram program = b.program();
  const spec::CommandCycles cycles =
      spec::vpu_cycles(params, b.command, b.accesses, program.sections());
  const auto start = static_cast<uint64_t>(params.vpu.kernel_start_cycles);
  EXPECT_EQ(cycles.free_at, start + section_cycles);
  EXPECT_EQ(cycles.done_at,
            start + section_cycles + static_cast<uint64_t>(params.vpu.pipeline_latency) + latency);
}

TEST(VpuCycles, BusiestSlotOfEachSection) {
  const spec::BoardParams params = spec::load_board("v3_8");
  ASSERT_EQ(params.vpu.alus, 2);
  KernelBuilder b = elementwise(0x10000, 10 * 1024);  // load 1, store 1, ALU 1/2
  expect_cycles(b, 10, 0);
  b.add(Section::kBody, VpuOp::kFmaF, 0, 0, 0, 0);  // ALU 3/2
  expect_cycles(b, 20, 0);
  b.add(Section::kBody, VpuOp::kExpF, 0, 0);  // ALU 19/2
  expect_cycles(b, 100, static_cast<uint64_t>(params.vpu.transcendental_latency));
  b.add(Section::kPost, VpuOp::kLred, 0, 0, 0, 0);
  b.add(Section::kPost, VpuOp::kSred, 0, 0, 0, 0);
  expect_cycles(b, 100 + 2 * static_cast<uint64_t>(params.vpu.reduce_interval),
                static_cast<uint64_t>(params.vpu.transcendental_latency) +
                    static_cast<uint64_t>(params.vpu.reduce_latency));
}

TEST(VpuCycles, StridedLanesPassOneSublaneACycle) {
  KernelBuilder b = elementwise(0x10000, 10 * 1024);
  b.accesses[0].lane = 8;
  expect_cycles(b, 80, 0);
  b.accesses[0].lane = 0;
  expect_cycles(b, 10, 0);
  b.accesses[0].lane = -4;
  expect_cycles(b, 10, 0);
}

TEST(VpuCycles, SectionsCountTheirLoops) {
  KernelBuilder b = column_sums(21, 300);  // 3 column blocks of 3 row blocks
  const spec::BoardParams params = spec::load_board("v3_8");
  const uint64_t body = 9;  // load
  const uint64_t leave = 3 * static_cast<uint64_t>(params.vpu.reduce_interval);
  expect_cycles(b, body + leave, static_cast<uint64_t>(params.vpu.reduce_latency));
}

}  // namespace
}  // namespace tpu::model
