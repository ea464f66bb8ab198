// Cost of commands: against sums over blocks, tiles and runs, and against the board's numbers.
#include "command/cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "board/board_loader.hpp"

namespace tpu::spec {
namespace {

const BoardParams kBoard = load_board("v3_8");

uint32_t below(std::mt19937& random, uint32_t limit) {
  return static_cast<uint32_t>(random() % limit);
}

TEST(TransposeCycles, AreTheLongerSideOfEachBlock) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    TransposeCommand c;
    c.rows = below(random, 700);
    c.cols = below(random, 700);
    c.batch = below(random, 3);
    const auto lanes = static_cast<uint32_t>(kBoard.vpu.lanes);
    uint64_t sum = 0;
    for (uint32_t r = 0; r < c.rows; r += lanes) {
      for (uint32_t k = 0; k < c.cols; k += lanes) {
        sum += std::max(std::min(lanes, c.rows - r), std::min(lanes, c.cols - k));
      }
    }
    const CommandCycles cycles = transpose_cycles(kBoard, c);
    EXPECT_EQ(cycles.free_at, sum * c.batch) << c.rows << " x " << c.cols;
    EXPECT_EQ(cycles.done_at, cycles.free_at + static_cast<uint64_t>(kBoard.xlu.latency));
  }
}

TEST(MatmulTiming, FollowsTheTilesOfTheCommand) {
  std::mt19937 random(2);
  const MxuShape shape = mxu_shape(kBoard);
  for (int i = 0; i < 200; ++i) {
    MatmulCommand c;
    for (auto* counts : {&c.m[0], &c.m[1], &c.m[2], &c.m[3], &c.t[0], &c.t[1], &c.t[2], &c.k[0],
                         &c.k[1], &c.k[2], &c.n[0], &c.n[1]}) {
      *counts = 1 + below(random, 6);
    }
    c.n[1] *= 60;
    c.k[2] *= 60;
    const uint64_t rows = uint64_t{c.m[0]} * c.m[1] * c.m[2] * c.m[3];
    const uint64_t k = uint64_t{c.k[0]} * c.k[1] * c.k[2];
    std::vector<MxuTileRef> tiles;
    const size_t n_tiles = c.n[0] * ((c.n[1] + shape.cols - 1) / shape.cols);
    const uint64_t k_tiles = c.t[0] * c.t[1] * c.t[2] * ((k + shape.rows - 1) / shape.rows);
    for (size_t at = 0; at < k_tiles * n_tiles; ++at) {
      tiles.push_back({rows, at < n_tiles ? MxuTileRef::kNone : at - n_tiles});
    }
    const std::vector<uint64_t> starts = mxu_tile_starts(shape, tiles);
    const MxuCommandTiming timing = matmul_timing(shape, c);
    EXPECT_EQ(timing.load, starts.front());
    EXPECT_EQ(timing.done_at, starts.back() + rows + mxu_latency(shape));
    EXPECT_EQ(timing.free_at, starts.back() + mxu_interval(shape, rows) - timing.load);
  }
}

// A body of one load and `work`, over `blocks` blocks.
CommandCycles body_cycles(VpuOp work, int32_t lane, uint32_t blocks) {
  VpuKernelCommand c;
  c.loops = {1, 1, 1, blocks};
  c.rows = 1;
  c.cols = 1024 * blocks;
  VpuAccess access;
  access.lane = lane;
  const std::vector<VpuInsn> code = {{.op = static_cast<uint8_t>(VpuOp::kLoad)},
                                     {.op = static_cast<uint8_t>(work)}};
  VpuProgramHeader header;
  header.section[4] = 2;
  return vpu_cycles(kBoard, c, std::span(&access, 1), vpu_sections(header, code));
}

TEST(VpuCycles, AreThoseOfTheBusiestSlot) {
  const auto start = static_cast<uint64_t>(kBoard.vpu.kernel_start_cycles);
  const auto pipeline = static_cast<uint64_t>(kBoard.vpu.pipeline_latency);
  EXPECT_EQ(body_cycles(VpuOp::kAddF, 4, 10).free_at, start + 10);
  EXPECT_EQ(body_cycles(VpuOp::kAddF, 0, 10).free_at, start + 10);
  EXPECT_EQ(body_cycles(VpuOp::kAddF, -4, 10).free_at, start + 10);
  EXPECT_EQ(body_cycles(VpuOp::kAddF, 8, 10).free_at,
            start + 10 * static_cast<uint64_t>(kBoard.vpu.sublanes));
  EXPECT_EQ(body_cycles(VpuOp::kAddF, 4, 10).done_at, start + 10 + pipeline);
  EXPECT_EQ(body_cycles(VpuOp::kExpF, 4, 10).done_at,
            start + 80 + pipeline + static_cast<uint64_t>(kBoard.vpu.transcendental_latency));
  EXPECT_EQ(body_cycles(VpuOp::kLred, 4, 1).done_at,
            start + static_cast<uint64_t>(kBoard.vpu.reduce_interval) + pipeline +
                static_cast<uint64_t>(kBoard.vpu.reduce_latency));
  EXPECT_EQ(body_cycles(VpuOp::kAddF, 4, 0).done_at, start);  // nothing to do
}

TEST(VpuCycles, SectionsRunAsOftenAsTheirLoops) {
  VpuKernelCommand c;
  c.loops = {2, 3, 5, 7};
  c.rows = c.cols = 1;
  const std::array<uint64_t, kVpuSections> expected = {1, 2, 6, 30, 210, 30, 6, 2, 1};
  for (int s = 0; s < kVpuSections; ++s) {
    EXPECT_EQ(vpu_executions(c, s), expected[static_cast<size_t>(s)]);
  }
}

TEST(TransferBytes, RoundEachContiguousRunToGranules) {
  DmaCommand c;
  c.elem_bytes = 4;
  c.counts = {1, 1, 1, 10, 25};
  c.src_strides = {0, 0, 0, 1000, 4};  // rows of 100 bytes with holes
  c.dst_strides = {0, 0, 0, 100, 4};   // dense
  const TransferBytes bytes = transfer_bytes(kBoard, c);
  EXPECT_EQ(bytes.src, 10u * 512);
  EXPECT_EQ(bytes.dst, 1024u);
  EXPECT_EQ(bytes.carried(), 10u * 512);
  FillCommand fill;
  fill.elem_bytes = 4;
  fill.counts = c.counts;
  fill.dst_strides = c.dst_strides;
  EXPECT_EQ(transfer_bytes(kBoard, fill).src, 0u);
  EXPECT_EQ(transfer_bytes(kBoard, fill).dst, 1024u);
}

TEST(TransferBytes, OfAnIndexedSideDoNotDependOnWhatFollowsWhat) {
  DmaIndexedCommand c;
  c.elem_bytes = 4;
  c.records = 8;
  c.counts = {1, 1, 1, 32};
  c.src_strides = c.dst_strides = {0, 0, 0, 4};
  c.record_stride = 128;  // the other side is dense
  EXPECT_EQ(transfer_bytes(kBoard, c).src, 8u * 512);
  EXPECT_EQ(transfer_bytes(kBoard, c).dst, 1024u);
  c.head.flags = c.kScatter;
  EXPECT_EQ(transfer_bytes(kBoard, c).src, 1024u);
  EXPECT_EQ(transfer_bytes(kBoard, c).dst, 8u * 512);
}

TEST(TransferFixedCycles, AddUpTheSides) {
  const uint64_t in = cycles_from_ns(kBoard, kBoard.dma.in_fixed_ns);
  const uint64_t out = cycles_from_ns(kBoard, kBoard.dma.out_fixed_ns);
  EXPECT_EQ(transfer_fixed_cycles(kBoard, true, false, false), in);
  EXPECT_EQ(transfer_fixed_cycles(kBoard, false, true, false), out);
  EXPECT_EQ(transfer_fixed_cycles(kBoard, true, true, false), in + out);
  EXPECT_EQ(transfer_fixed_cycles(kBoard, false, false, false),
            cycles_from_ns(kBoard, kBoard.dma.local_fixed_ns));
  EXPECT_EQ(transfer_fixed_cycles(kBoard, false, false, true), 0u);  // the links' part is not here
}

}  // namespace
}  // namespace tpu::spec
