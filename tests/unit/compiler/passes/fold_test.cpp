// Pass `fold`: constants are computed with the semantics of arithmetic, within limits.
#include "passes/fold.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "graph_builder.hpp"
#include "ir/verify.hpp"
#include "passes/dce.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;
using test::kinds;

std::string folded(Module& m) {
  fold_constants(m);
  remove_dead_ops(m);
  m.number_ops();
  verify(m);
  return kinds(m);
}

const Dense& result(const Module& m) {
  return m.main->body.terminator()->operands[0]->def->as<ConstantAttrs>().value;
}

TEST(Fold, ScalarsAndSplatsOfAnySize) {
  GraphBuilder b;
  Value* x = b.constant(f32({1000, 1000}), 3);
  Value* y = b.op(Kind::kMultiply, {x, b.constant(f32({1000, 1000}), 0.5)}, f32({1000, 1000}));
  Module& m = b.done({y});
  EXPECT_EQ(folded(m), "constant return");
  EXPECT_TRUE(result(m).splat);
  EXPECT_EQ(result(m).as_double(0), 1.5);
}

TEST(Fold, FlushesSubnormalResults) {
  GraphBuilder b;
  Value* x = b.constant(f32({}), 1e-30);
  Value* y = b.op(Kind::kMultiply, {x, b.constant(f32({}), -1e-30)}, f32({}));
  Module& m = b.done({y});
  EXPECT_EQ(folded(m), "constant return");
  EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(result(m).as_double(0))), 0x80000000u);
}

TEST(Fold, SmallArraysElementByElement) {
  GraphBuilder b;
  Value* x = b.op(Kind::kConstant, {}, i32({3}),
                  ConstantAttrs{make_dense_of<int32_t>(i32({3}), {1, 2, 3})});
  Value* y = b.op(Kind::kMultiply, {x, x}, i32({3}));
  Value* z = b.op(Kind::kReshape, {y}, i32({3, 1}));
  Module& m = b.done({z});
  EXPECT_EQ(folded(m), "constant return");
  EXPECT_EQ(result(m).as_int(2), 9);
}

TEST(Fold, EqualElementsBecomeASplat) {
  GraphBuilder b;
  Value* x =
      b.op(Kind::kConstant, {}, i32({2}), ConstantAttrs{make_dense_of<int32_t>(i32({2}), {4, 9})});
  Value* y = b.op(Kind::kSubtract, {x, x}, i32({2}));
  Module& m = b.done({y});
  EXPECT_EQ(folded(m), "constant return");
  EXPECT_TRUE(result(m).splat);
}

TEST(Fold, LeavesLargeArraysAndSumsToTheBoard) {
  GraphBuilder b;
  const Type big = i32({kMaxFoldedElements + 1});
  std::vector<int32_t> values(static_cast<size_t>(big.count()));
  values[1] = 1;
  Value* x = b.op(Kind::kConstant, {}, big, ConstantAttrs{make_dense_of(big, values)});
  Value* y = b.op(Kind::kAdd, {x, x}, big);
  Value* sum = b.reduce(b.constant(f32({4}), 1), b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  EXPECT_EQ(folded(b.done({y, sum})), "constant add constant constant reduce return");
}

TEST(Fold, NeedsAllOperandsConstant) {
  GraphBuilder b;
  Value* y = b.op(Kind::kAdd, {b.arg(f32({})), b.constant(f32({}), 1)}, f32({}));
  EXPECT_EQ(folded(b.done({y})), "constant add return");
}

}  // namespace
}  // namespace tpu::compiler
