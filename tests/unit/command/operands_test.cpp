// Operands of random commands against what the manual says they touch, byte by byte, and the runs
// of their patterns.
#include "command/operands.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "command/vpu_footprint.hpp"

namespace tpu::spec {
namespace {

using Bytes = std::set<int64_t>;

std::mt19937 random_source(7);
uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_source() % limit); }
template <typename Counts>
void randomise(Counts& counts, uint32_t limit) {
  for (auto& count : counts) {
    count = 1 + below(limit);
  }
}
template <typename Strides>
void randomise_strides(Strides& strides) {
  for (auto& stride : strides) {
    stride = static_cast<std::remove_reference_t<decltype(stride)>>(
        static_cast<int64_t>(below(161)) - 80);
  }
}

// Calls visit(index) for every index below the counts.
void for_each(std::span<const uint32_t> counts,
              const std::function<void(std::span<const int64_t>)>& visit) {
  std::vector<int64_t> index(counts.size(), 0);
  for (;;) {
    visit(index);
    size_t d = counts.size();
    while (d > 0 && ++index[d - 1] == counts[d - 1]) {
      index[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

template <typename Strides>
int64_t dot(std::span<const int64_t> index, const Strides& strides) {
  int64_t sum = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    sum += index[i] * strides[i];
  }
  return sum;
}

void add(Bytes& bytes, int64_t at, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    bytes.insert(at + i);
  }
}

Bytes bytes_of(const StridePattern& pattern) {
  std::vector<uint32_t> counts;
  std::vector<int64_t> strides;
  for (const StridePattern::Level& level : pattern.levels()) {
    counts.push_back(static_cast<uint32_t>(level.count));
    strides.push_back(level.stride);
  }
  Bytes bytes;
  for_each(counts, [&](std::span<const int64_t> index) {
    add(bytes, pattern.base() + dot(index, strides), pattern.run());
  });
  return bytes;
}

void expect_bytes(const CommandOperand& operand, const Bytes& expected) {
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(bytes_of(operand.bytes), expected);
  EXPECT_EQ(operand.bytes.extent().low, *expected.begin());
  EXPECT_EQ(operand.bytes.extent().high, *expected.rbegin() + 1);
}

TEST(Operands, OfAMatmul) {
  for (int round = 0; round < 60; ++round) {
    MatmulCommand c;
    randomise(c.m, 3), randomise(c.t, 2), randomise(c.k, 3), randomise(c.n, 3);
    randomise_strides(c.m_lhs), randomise_strides(c.m_out), randomise_strides(c.t_lhs);
    randomise_strides(c.t_rhs), randomise_strides(c.k_rhs), randomise_strides(c.n_rhs);
    randomise_strides(c.n_out);
    c.lhs_type = static_cast<uint8_t>(below(2) == 0 ? Elem::kF32 : Elem::kBf16);
    c.rhs_type = static_cast<uint8_t>(below(2) == 0 ? Elem::kF32 : Elem::kBf16);
    const int64_t lhs_bytes = vpu_element_bytes(c.lhs_type);
    const int64_t rhs_bytes = vpu_element_bytes(c.rhs_type);
    Bytes out, lhs, rhs;
    for_each(c.m, [&](auto m) {
      for_each(c.n, [&](auto n) { add(out, dot(m, c.m_out) + dot(n, c.n_out), 4); });
      for_each(c.t, [&](auto t) {
        int64_t k = 0;  // contiguous, flattened
        for_each(c.k, [&](auto) {
          add(lhs, dot(m, c.m_lhs) + dot(t, c.t_lhs) + k++ * lhs_bytes, lhs_bytes);
        });
      });
    });
    for_each(c.t, [&](auto t) {
      for_each(c.k, [&](auto k) {
        for_each(c.n, [&](auto n) {
          add(rhs, dot(t, c.t_rhs) + dot(k, c.k_rhs) + dot(n, c.n_rhs), rhs_bytes);
        });
      });
    });
    const auto operands = spec::operands(c);
    expect_bytes(operands[0], out);
    expect_bytes(operands[1], lhs);
    expect_bytes(operands[2], rhs);
    EXPECT_TRUE(operands[0].write && !operands[1].write && !operands[2].write);
  }
}

TEST(Operands, OfATranspose) {
  for (int round = 0; round < 60; ++round) {
    TransposeCommand c;
    c.elem_bytes = 1u << below(4);
    c.batch = 1 + below(3), c.rows = 1 + below(5), c.cols = 1 + below(5);
    std::array<int32_t, 4> strides;
    randomise_strides(strides);
    c.src_pitch = strides[0], c.dst_pitch = strides[1];
    c.src_batch = strides[2], c.dst_batch = strides[3];
    Bytes src, dst;
    const int64_t e = c.elem_bytes;
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t k = 0; k < c.cols; ++k) {
          add(src, b * c.src_batch + r * c.src_pitch + k * e, e);
          add(dst, b * c.dst_batch + k * c.dst_pitch + r * e, e);
        }
      }
    }
    expect_bytes(spec::operands(c)[0], src);
    expect_bytes(spec::operands(c)[1], dst);
  }
}

TEST(Operands, OfTransfersAndFills) {
  for (int round = 0; round < 60; ++round) {
    DmaCommand c;
    c.head.queue = static_cast<uint8_t>(round % 2 == 0 ? Queue::kDmaIn : Queue::kDmaRemote);
    c.elem_bytes = 1u << below(4);
    randomise(c.counts, 3), randomise_strides(c.src_strides), randomise_strides(c.dst_strides);
    Bytes src, dst;
    for_each(c.counts, [&](auto i) {
      add(src, dot(i, c.src_strides), c.elem_bytes);
      add(dst, dot(i, c.dst_strides), c.elem_bytes);
    });
    expect_bytes(spec::operands(c)[0], src);
    expect_bytes(spec::operands(c)[1], dst);
    EXPECT_EQ(spec::operands(c)[1].remote, round % 2 != 0);
    FillCommand fill;
    fill.elem_bytes = c.elem_bytes, fill.counts = c.counts, fill.dst_strides = c.dst_strides;
    expect_bytes(spec::operands(fill)[0], dst);
  }
}

TEST(Operands, OfAnIndexedTransferHoldEveryWindowInTheSpan) {
  for (int round = 0; round < 60; ++round) {
    DmaIndexedCommand c;
    c.head.flags = round % 2 == 0 ? c.kScatter : uint8_t{0};
    c.elem_bytes = 1u << below(4);
    c.records = 1 + below(4), c.span = 64 + below(64);
    randomise(c.counts, 3), randomise_strides(c.src_strides), randomise_strides(c.dst_strides);
    c.record_stride = static_cast<int64_t>(below(200)) - 100;
    const auto& other_strides = c.scatter() ? c.src_strides : c.dst_strides;
    const auto& window_strides = c.scatter() ? c.dst_strides : c.src_strides;
    Bytes other, span, list, window;
    add(span, 0, c.span);
    add(list, 0, int64_t{4} * c.records);
    for_each(c.counts, [&](auto i) {
      add(window, dot(i, window_strides), c.elem_bytes);
      for (int64_t r = 0; r < c.records; ++r) {
        add(other, r * c.record_stride + dot(i, other_strides), c.elem_bytes);
      }
    });
    expect_bytes(spec::operands(c)[c.scatter() ? 1 : 0], span);
    expect_bytes(spec::operands(c)[c.scatter() ? 0 : 1], other);
    expect_bytes(spec::operands(c)[2], list);
    EXPECT_EQ(bytes_of(indexed_window(c)), window);
  }
}

VpuInsn memory_op(bool store, VpuStoreMode mode) {
  VpuInsn insn{};
  insn.op = static_cast<uint8_t>(store ? VpuOp::kStore : VpuOp::kLoad);
  insn.rs2 = store ? static_cast<uint8_t>(mode) : uint8_t{0};
  return insn;
}

// What the manual says of a block's elements, for an access under `depth` loops.
Bytes kernel_bytes(const VpuKernelCommand& c, const VpuAccess& a, const VpuInsn& insn, int depth) {
  Bytes bytes;
  const auto mode = static_cast<VpuStoreMode>(insn.rs2);
  const bool one_row = mode == VpuStoreMode::kSublane0 || mode == VpuStoreMode::kElement0;
  const bool one_lane = mode == VpuStoreMode::kLane0 || mode == VpuStoreMode::kElement0;
  std::array<uint32_t, 4> loops = {1, 1, 1, 1};
  std::copy_n(c.loops.begin(), depth, loops.begin());
  for_each(loops, [&](std::span<const int64_t> i) {
    const int64_t width = c.flat() ? 1024 : 128;
    const int64_t row_block = c.row_loop < 4 ? i[c.row_loop] : 0;
    const int64_t col_block = c.col_loop < 4 ? i[c.col_loop] : 0;
    const int64_t rows = c.flat() ? 1 : std::min<int64_t>(8, c.rows - 8 * row_block);
    const int64_t cols = std::min<int64_t>(width, c.cols - width * col_block);
    for (int64_t s = 0; s < rows; ++s) {
      for (int64_t l = 0; l < cols; ++l) {
        const int64_t sublane = c.flat() ? l / 128 : s, lane = c.flat() ? l % 128 : l;
        if ((!one_row || sublane == 0) && (!one_lane || lane == 0)) {
          add(bytes, dot(i, a.loop) + s * a.sub + l * a.lane, vpu_element_bytes(a.type));
        }
      }
    }
  });
  return bytes;
}

struct Kernel {
  VpuKernelCommand command;
  VpuAccess access;
  bool dense = false;  // blocks follow each other
};

Kernel random_kernel(bool flat) {
  Kernel kernel;
  VpuKernelCommand& c = kernel.command;
  VpuAccess& a = kernel.access;
  c.head.flags = flat ? c.kFlat : uint8_t{0};
  c.row_loop = flat ? 255 : static_cast<uint8_t>(1 + below(2));
  c.col_loop = 3;
  c.rows = flat ? 1 : 1 + below(20);
  c.cols = 1 + below(flat ? 1500 : 300);
  const uint32_t width = flat ? 1024 : 128;
  c.loops = {1 + below(2), 1 + below(2), 1 + below(2), (c.cols + width - 1) / width};
  a.type = static_cast<uint8_t>(below(2) == 0 ? Elem::kF32 : Elem::kBf16);
  const int32_t e = vpu_element_bytes(a.type);
  a.lane = e * (static_cast<int32_t>(below(4)) - 1);
  a.sub = e * static_cast<int32_t>(below(700));
  kernel.dense = below(2) == 0;
  for (int32_t& stride : a.loop) {
    stride = static_cast<int32_t>(below(9000)) - 2000;
  }
  if (!flat) {
    c.loops[c.row_loop] = (c.rows + 7) / 8;
  }
  if (kernel.dense) {
    a.loop[3] = static_cast<int32_t>(width) * a.lane;
    a.loop[flat ? 2 : c.row_loop] = 8 * a.sub;
  }
  return kernel;
}

TEST(VpuFootprint, IsWhatTheManualSaysOfEachSection) {
  for (int round = 0; round < 240; ++round) {
    const Kernel kernel = random_kernel(round % 3 == 0);
    const VpuInsn insn = memory_op(round % 2 == 0, static_cast<VpuStoreMode>(below(4)));
    const int section = static_cast<int>(below(kVpuSections));
    const Bytes touched = kernel_bytes(kernel.command, kernel.access, insn,
                                       kVpuSectionDepth[static_cast<size_t>(section)]);
    const VpuFootprint footprint(kernel.command, kernel.access, insn, vpu_loops_around(section));
    Bytes said;
    for (const StridePattern& pattern : footprint.patterns()) {
      said.merge(bytes_of(pattern));
    }
    EXPECT_EQ(said, touched) << "round " << round;
    EXPECT_EQ(footprint.extent().low, *touched.begin()) << "round " << round;
    EXPECT_EQ(footprint.extent().high, *touched.rbegin() + 1) << "round " << round;
  }
}

TEST(VpuFootprint, AHullHoldsAllAndNoMoreWhereBlocksFollowEachOther) {
  for (int round = 0; round < 120; ++round) {
    const Kernel kernel = random_kernel(round % 3 == 0);
    const VpuInsn insn = memory_op(round % 2 == 0, static_cast<VpuStoreMode>(below(4)));
    const Bytes touched = kernel_bytes(kernel.command, kernel.access, insn, 4);
    const CommandOperand operand = spec::operand(kernel.command, kernel.access, insn);
    const Bytes said = bytes_of(operand.bytes);
    EXPECT_EQ(operand.write, round % 2 == 0);
    EXPECT_TRUE(std::ranges::includes(said, touched)) << "round " << round;
    if (kernel.dense && static_cast<VpuStoreMode>(insn.rs2) == VpuStoreMode::kAll) {
      EXPECT_EQ(said, touched) << "round " << round;
    }
  }
}

TEST(VisitRuns, AreThePatternHoweverItOverlapsOrRunsBackwards) {
  for (int round = 0; round < 300; ++round) {
    StridePattern pattern(100, 1 + below(12));
    for (uint32_t levels = below(6); levels > 0; --levels) {
      pattern.add(1 + below(4), (static_cast<int64_t>(below(25)) - 12) * 4);
    }
    Bytes bytes;
    visit_runs(pattern, [&](int64_t address, int64_t count) { add(bytes, address, count); });
    EXPECT_EQ(bytes, bytes_of(pattern)) << "round " << round;
  }
}

TEST(VisitRuns, WindowsAndTransposedWeightsAreFew) {
  constexpr int64_t kChannels = 8, kSide = 6, kOutSide = 4;
  MatmulCommand c;
  c.m = {1, 1, kOutSide, kOutSide};
  c.m_lhs = {0, 0, kSide * kChannels * 4, kChannels * 4};
  c.m_out = {0, 0, kOutSide * kChannels * 4, kChannels * 4};
  c.t = {1, 3, 3};
  c.t_lhs = {0, kSide * kChannels * 4, kChannels * 4};
  c.t_rhs = {0, -3 * kChannels * kChannels * 4, -kChannels * kChannels * 4};
  c.k = {1, 1, kChannels};
  c.k_rhs = {0, 0, 4};
  c.n = {1, kChannels};
  c.n_rhs = {0, kChannels * 4};
  c.n_out = {0, 4};
  c.lhs_type = c.rhs_type = static_cast<uint8_t>(Elem::kF32);
  int runs = 0;
  for (const CommandOperand& operand : spec::operands(c)) {
    visit_runs(operand.bytes, [&](int64_t, int64_t) { ++runs; });
  }
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace tpu::spec
