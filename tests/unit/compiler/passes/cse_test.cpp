// Pass `cse`: what is merged and what must not be.
#include "passes/cse.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::kinds;

TEST(Cse, MergesChainsInOneSweep) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* a = b.op(Kind::kExp, {b.op(Kind::kNegate, {x}, f32({2}))}, f32({2}));
  Value* c = b.op(Kind::kExp, {b.op(Kind::kNegate, {x}, f32({2}))}, f32({2}));
  Value* sum = b.op(Kind::kAdd, {a, c}, f32({2}));
  Module& m = b.done({sum});
  EXPECT_EQ(merge_common_ops(m), 2u);
  verify(m);
  EXPECT_EQ(kinds(m), "negate exponential add return");
}

TEST(Cse, KeepsDifferentAttributesTypesAndConstants) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  std::vector<Value*> all;
  for (const CompareDirection d : {CompareDirection::kLt, CompareDirection::kGt}) {
    all.push_back(b.op(Kind::kCompare, {x, x}, i1({2}), CompareAttrs{d}));
  }
  all.push_back(b.constant(f32({2}), 0.0));
  all.push_back(b.constant(f32({2}), -0.0));
  all.push_back(b.constant(f32({3}), 0.0));
  Module& m = b.done(all);
  EXPECT_EQ(merge_common_ops(m), 0u);
}

TEST(Cse, ReductionsCompareTheirBodies) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* zero = b.constant(f32({}), 0);
  Value* a = b.reduce(x, zero, {0}, f32({}), Kind::kAdd);
  Value* same = b.reduce(x, zero, {0}, f32({}), Kind::kAdd);
  Value* other = b.reduce(x, zero, {0}, f32({}), Kind::kMaximum);
  Module& m = b.done({a, same, other});
  EXPECT_EQ(merge_common_ops(m), 1u);
  verify(m);
  EXPECT_EQ(kinds(m), "constant reduce reduce return");
}

TEST(Cse, RandomNumbersAreNotMerged) {
  GraphBuilder b;
  Value* low = b.constant(f32({}), 0);
  Value* shape =
      b.op(Kind::kConstant, {}, test::i32({0}), ConstantAttrs{make_dense(test::i32({0}), {})});
  Value* x = b.op(Kind::kRng, {low, low, shape}, f32({}), RngAttrs{"uniform"});
  Value* y = b.op(Kind::kRng, {low, low, shape}, f32({}), RngAttrs{"uniform"});
  Module& m = b.done({x, y});
  EXPECT_EQ(merge_common_ops(m), 0u);
}

}  // namespace
}  // namespace tpu::compiler
