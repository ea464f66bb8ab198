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

// Twenty rounds as of Threefry: one kernel, so that the words between them do not pass HBM.
TEST(Form, AGeneratorOfRandomBitsIsOneKernel) {
  GraphBuilder b;
  const Type type{Elem::kU32, {64, 1024}};
  Value* low = b.arg(type);
  Value* high = b.arg(type);
  for (int round = 0; round < 20; ++round) {
    low = b.op(Kind::kAdd, {low, high}, type);
    Value* left = b.op(Kind::kShiftLeft, {high, b.constant(type, 13)}, type);
    Value* right = b.op(Kind::kShiftRightLogical, {high, b.constant(type, 19)}, type);
    high = b.op(Kind::kXor, {low, b.op(Kind::kOr, {left, right}, type)}, type);
  }
  Value* bits = b.op(Kind::kXor, {low, high}, type);
  Value* kept = b.op(Kind::kCompare, {bits, b.constant(type, 1e9)}, i1(type.dims),
                     CompareAttrs{CompareDirection::kLt});
  Value* x = b.arg(f32(type.dims));
  Value* y = b.op(Kind::kSelect, {kept, x, b.constant(x->type, 0)}, x->type);
  const KernelProgram k = make_kernels(b.done({y}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 2u) << print(k);  // and the copy out
  EXPECT_EQ(k.kernels.front().ops.size(), 103u);
}

// Other long chains are cut where they were: their values need registers.
TEST(Form, LongChainsOfFloatsAreCut) {
  GraphBuilder b;
  const Type type = f32({64, 1024});
  Value* x = b.arg(type);
  for (int i = 0; i < 60; ++i) {
    x = b.op(Kind::kExp, {x}, type);
  }
  const KernelProgram k = make_kernels(b.done({x}), spec::load_board("v3_8"));
  ASSERT_EQ(k.kernels.size(), 3u) << print(k);
  EXPECT_EQ(k.kernels.front().ops.size(), 48u);
}

}  // namespace
}  // namespace tpu::compiler::test
