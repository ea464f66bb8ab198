// What is done before the values of the next barrier are computed again.
#include "passes/barrier_order.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;

const Type kType = f32({8, 8});
const DotAttrs kAttrs{{}, {}, {1}, {0}};

struct Layers {
  GraphBuilder b;
  Value* x = b.arg(kType);
  Value* g = b.arg(kType);

  // A value that is computed again when `g` is there.
  Value* again() {
    const Op* barrier = b.region().append(Kind::kOptimizationBarrier, {x, g}, {kType, kType},
                                          NoAttrs{}, unknown_loc());
    return b.op(Kind::kExp, {barrier->result(0)}, kType);
  }
  Value* dot(Value* lhs, Value* rhs) { return b.op(Kind::kDotGeneral, {lhs, rhs}, kType, kAttrs); }
};

// Gradients of weights at the end of the program, as PyTorch/XLA gives them.
TEST(BarrierOrder, ProductsOfRecomputedValuesAreInFrontOfTheNextBarrier) {
  Layers l;
  Value* first = l.again();
  l.g = l.dot(first, l.g);
  Value* turned = l.b.op(Kind::kTranspose, {first}, kType, DimsAttrs{{1, 0}});
  Value* second = l.again();
  Value* y = l.dot(second, l.g);
  Value* w = l.dot(l.b.op(Kind::kNegate, {turned}, kType), l.x);
  Value* other = l.dot(l.x, l.x);  // of no barrier
  Module& m = l.b.done({y, w, other});
  EXPECT_TRUE(order_behind_barriers(m));
  verify(m);
  EXPECT_EQ(kinds(m),
            "optimization_barrier exponential dot_general transpose negate dot_general "
            "optimization_barrier exponential dot_general dot_general return");
  EXPECT_EQ(m.main->body.ops[5].get(), w->def);
  EXPECT_FALSE(order_behind_barriers(m));
}

TEST(BarrierOrder, WhatWaitsForTheBarrierOrForEffectsStays) {
  Layers l;
  Value* first = l.again();
  l.g = l.dot(first, l.g);
  Value* second = l.again();
  Value* w = l.dot(first, second);
  Value* received =
      l.b.region()
          .append(Kind::kRecv, {}, {kType}, HostAttrs{1, -1, kType, true, false}, unknown_loc())
          ->result();
  Module& m = l.b.done({w, l.dot(first, received)});
  const std::string before = kinds(m);
  EXPECT_FALSE(order_behind_barriers(m));
  EXPECT_EQ(kinds(m), before);
}

}  // namespace
}  // namespace tpu::compiler
