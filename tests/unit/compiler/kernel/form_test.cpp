// The pass `form`: what shares a kernel.
#include <gtest/gtest.h>

#include "../graph_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"

namespace tpu::compiler::test {
namespace {

TEST(Form, ElementwiseChainsAndReducesFuse) {
  GraphBuilder b;
  Value* x = b.arg(f32({25, 10}));
  Value* e = b.op(Kind::kExp, {x}, f32({25, 10}));
  Value* s = b.reduce(e, b.constant(f32({}), 0), {1}, f32({25}), Kind::kAdd);
  Value* wide = b.op(Kind::kBroadcastInDim, {s}, f32({25, 10}), DimsAttrs{{0}});
  Value* y = b.op(Kind::kDivide, {e, wide}, f32({25, 10}));
  const KernelProgram k = make_kernels(b.done({y}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 3u) << print(k);
  EXPECT_EQ(k.kernels.front().ops.size(), 2u);
}

TEST(Form, CollectivesOfOneKindShareABucket) {
  GraphBuilder b(8);
  std::vector<Value*> sums;
  for (int i = 0; i < 3; ++i) {
    Value* x = b.arg(f32({i + 1}));
    Value* n = b.op(Kind::kNegate, {x}, f32({i + 1}));
    sums.push_back(
        b.with_body(b.op(Kind::kAllReduce, {n}, f32({i + 1}), CollectiveAttrs{}), Kind::kAdd));
  }
  const KernelProgram k = make_kernels(b.done(sums), spec::load_board("v3_8"));
  EXPECT_EQ(k.buckets.size(), 1u) << print(k);
}

}  // namespace
}  // namespace tpu::compiler::test
