// Which cores surely hold the same: numbers made of the core's own are computed for each core.
#include "kernel/core_classes.hpp"

#include <gtest/gtest.h>

#include "../graph_builder.hpp"

namespace tpu::compiler::test {
namespace {

class Classes : public GraphBuilder {
 public:
  Classes() : GraphBuilder(8) {}

  Value* core() { return op(Kind::kPartitionId, {}, i32({})); }
  Value* number(int64_t n) {
    return op(Kind::kConstant, {}, i32({}), ConstantAttrs{make_splat_int(i32({}), n)});
  }
  CoreClasses of(Value* v) { return ValueClasses(done({v})).of(v); }
};

TEST(CoreClasses, PlacesAlongTheAxesOfAMesh) {
  Classes major;
  EXPECT_EQ(major.of(major.op(Kind::kDivide, {major.core(), major.number(2)}, i32({}))),
            (CoreClasses{0, 0, 1, 1, 2, 2, 3, 3}));
  Classes minor;
  EXPECT_EQ(minor.of(minor.op(Kind::kRemainder, {minor.core(), minor.number(2)}, i32({}))),
            (CoreClasses{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(CoreClasses, EqualNumbersOfDifferentCoresAreOneClass) {
  Classes g;
  Value* less = g.op(Kind::kMinimum, {g.core(), g.number(2)}, i32({}));
  EXPECT_EQ(g.of(less), (CoreClasses{0, 1, 2, 2, 2, 2, 2, 2}));
  Classes same;
  EXPECT_EQ(same.of(same.op(Kind::kMultiply, {same.core(), same.number(0)}, i32({}))),
            CoreClasses());
}

TEST(CoreClasses, WhatIsNotKnownKeepsCoresApart) {
  Classes g;
  Value* x = g.arg(i32({}));
  EXPECT_EQ(g.of(g.op(Kind::kMultiply, {g.core(), x}, i32({}))),
            (CoreClasses{0, 1, 2, 3, 4, 5, 6, 7}));
  Classes replicated;
  Value* y = replicated.arg(i32({}));
  EXPECT_EQ(replicated.of(replicated.op(Kind::kNegate, {y}, i32({}))), CoreClasses());
}

TEST(CoreClasses, AReplicatedFactorKeepsTheClassesOfANumber) {
  Classes g;
  Value* x = g.arg(i32({}));
  Value* stage = g.op(Kind::kDivide, {g.core(), g.number(4)}, i32({}));
  EXPECT_EQ(g.of(g.op(Kind::kMultiply, {stage, x}, i32({}))),
            (CoreClasses{0, 0, 0, 0, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace tpu::compiler::test
