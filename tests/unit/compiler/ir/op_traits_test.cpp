// The columns of TPU_OP_KINDS: each elementwise kind can be computed on the types that it says it
// takes, and traits that exclude each other do not meet.
#include "ir/op_traits.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph_builder.hpp"
#include "ir/eval.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

constexpr Elem kReal[] = {Elem::kF32, Elem::kBf16};
constexpr Elem kWhole[] = {Elem::kI8, Elem::kI32, Elem::kI64, Elem::kU8, Elem::kU32, Elem::kU64};

std::vector<Elem> types_of(Takes takes) {
  std::vector<Elem> out;
  if (takes != Takes::kOwn && takes != Takes::kBits && takes != Takes::kIntegers) {
    out.insert(out.end(), std::begin(kReal), std::end(kReal));
  }
  if (takes == Takes::kAny || takes == Takes::kNumbers || takes == Takes::kBits ||
      takes == Takes::kIntegers) {
    out.insert(out.end(), std::begin(kWhole), std::end(kWhole));
  }
  if (takes == Takes::kAny || takes == Takes::kBits) {
    out.push_back(Elem::kI1);
  }
  return out;
}

Attrs attrs_of(Kind kind) {
  return kind == Kind::kReducePrecision ? Attrs{ReducePrecisionAttrs{5, 10}} : Attrs{NoAttrs{}};
}

TEST(OpTraits, ElementwiseKindsAreComputedOnTheTypesThatTheyTake) {
  int computed = 0;
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    const Group group = traits_of(kind).group;
    if (group != Group::kUnary && group != Group::kBinary) {
      continue;
    }
    for (const Elem e : types_of(traits_of(kind).takes)) {
      SCOPED_TRACE(std::string(kind_name(kind)) + " of " + std::string(elem_name(e)));
      const Type type{e, {3}};
      test::GraphBuilder b;
      std::vector<Value*> operands;
      std::vector<Tensor> arrays;
      Tensors refs;
      for (int n = group == Group::kUnary ? 1 : 2; n > 0; --n) {
        operands.push_back(b.arg(type));
        arrays.push_back(make_tensor(type));
      }
      for (const Tensor& array : arrays) {
        refs.push_back(&array);
      }
      Value* out = b.op(kind, operands, type, attrs_of(kind));
      const Module& m = b.done({out});
      EXPECT_NO_THROW(verify(m));
      EXPECT_NO_THROW(EXPECT_EQ(eval_op(*out->def, refs, EvalOptions{}).type, type));
      ++computed;
    }
  }
  EXPECT_GT(computed, 150);
}

// Reductions are exchanged, split and joined: their bodies take two operands in either order.
TEST(OpTraits, ReducersHaveTwoOperands) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    if (has_trait(kind, trait::kReducer)) {
      EXPECT_EQ(traits_of(kind).group, Group::kBinary) << kind_name(kind);
    }
  }
}

TEST(OpTraits, ViewsFoldAndKeepTheirOperandsElements) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    if (has_trait(kind, trait::kView) && kind != Kind::kOptimizationBarrier) {
      EXPECT_TRUE(has_trait(kind, trait::kFolds)) << kind_name(kind);
    }
    if (has_trait(kind, trait::kView)) {
      EXPECT_EQ(traits_of(kind).group, Group::kShape) << kind_name(kind);
    }
  }
}

TEST(OpTraits, NamesOfSourcesAreTheOpsThatUsersKnow) {
  EXPECT_EQ(source_name(Kind::kAdd), "stablehlo.add");
  EXPECT_EQ(source_name(Kind::kErf), "chlo.erf");
  EXPECT_EQ(source_name(Kind::kIndexedCombine), "stablehlo.scatter");
  EXPECT_EQ(source_name(Kind::kReshard), "sdy.reshard");
}

TEST(KindTable, FindsRowsByKind) {
  static constexpr KindTable<int> kTable{{Kind::kSubtract, 2}, {Kind::kAdd, 1}};
  EXPECT_EQ(kTable.find(Kind::kAdd), 1);
  EXPECT_EQ(kTable.find(Kind::kSubtract), 2);
  EXPECT_EQ(kTable.find(Kind::kMultiply), 0);
  EXPECT_FALSE(kTable.has_all([](Kind kind) { return kind == Kind::kMultiply; }));
}

}  // namespace
}  // namespace tpu::compiler
