// Short innermost dimensions and the rows of blocks.
#include <gtest/gtest.h>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

// The words of counters, [words][counters], in the order of the counters.
Dims loops_of(int64_t counters, int64_t words) {
  GraphBuilder b;
  Value* x = b.arg(f32({words, counters}));
  Value* turned = b.op(Kind::kTranspose, {x}, f32({counters, words}), DimsAttrs{{1, 0}});
  const KernelProgram k =
      make_kernels(b.done({b.op(Kind::kNegate, {turned}, turned->type)}), spec::load_board("v3_8"));
  Dims out;
  for (const Loop& l : k.kernels.front().loop().nest.loops) {
    out.push_back(l.n);
  }
  const Nest& nest = k.kernels.front().loop().nest;
  EXPECT_EQ(nest.elements(), counters * words);
  for (const NestAccess& a : nest.accesses) {
    int64_t last = a.view.offset;
    for (size_t l = 0; l < nest.loops.size(); ++l) {
      last += a.view.stride[l] * (nest.loops[l].n - 1);
    }
    EXPECT_EQ(last, counters * words - 1);
  }
  return out;
}

TEST(FullBlocks, AShortDimensionLeavesTheRowsToTheOneOutside) {
  EXPECT_EQ(loops_of(1 << 20, 4), (Dims{8192, 128, 4}));
  EXPECT_EQ(loops_of(1 << 20, 2), (Dims{8192, 128, 2}));
}

TEST(FullBlocks, OthersStay) {
  EXPECT_EQ(loops_of(1 << 20, 8), (Dims{1 << 20, 8}));                  // has rows for a block
  EXPECT_EQ(loops_of((1 << 20) + 128, 4), (Dims{(1 << 20) + 128, 4}));  // would not fill the last
  EXPECT_EQ(loops_of(1024, 4), (Dims{1024, 4}));                        // small
}

}  // namespace
}  // namespace tpu::compiler::test
