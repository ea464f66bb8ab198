// Pass `operand_casts`: which casts contractions look through.
#include "passes/operand_casts.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler::test {
namespace {

const Type kWide = f32({4, 4}), kNarrow{Elem::kBf16, {4, 4}};

Value* dot(GraphBuilder& b, Value* lhs, Value* rhs) {
  DotAttrs attrs;
  attrs.lhs_contract = {1};
  attrs.rhs_contract = {0};
  return b.op(Kind::kDotGeneral, {lhs, rhs}, kNarrow, attrs);
}

TEST(OperandCasts, OfArgumentsThatOnlyContractionsReadVanish) {
  GraphBuilder b;
  Value *w = b.arg(kWide), *x = b.arg(kNarrow);
  Value* cast = b.op(Kind::kConvert, {w}, kNarrow);
  Module& m = b.done({dot(b, x, cast), dot(b, cast, x)});
  EXPECT_EQ(read_arguments_uncast(m), 2u);
  verify(m);
  EXPECT_EQ(kinds(m), "dot_general dot_general return");
}

TEST(OperandCasts, StayForOtherReadersAndOfOtherValues) {
  GraphBuilder b;
  Value *w = b.arg(kWide), *x = b.arg(kNarrow);
  Value* cast = b.op(Kind::kConvert, {w}, kNarrow);
  Value* made = b.op(Kind::kConvert, {b.op(Kind::kNegate, {w}, kWide)}, kNarrow);
  Module& m = b.done({dot(b, x, cast), b.op(Kind::kAbs, {cast}, kNarrow), dot(b, x, made)});
  EXPECT_EQ(read_arguments_uncast(m), 1u);
  verify(m);
  EXPECT_EQ(kinds(m), "convert negate convert dot_general abs dot_general return");
}

}  // namespace
}  // namespace tpu::compiler::test
