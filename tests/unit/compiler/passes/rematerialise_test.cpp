// Which values are computed again where they are read late, and from what.
#include "passes/rematerialise.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/verify.hpp"
#include "kept_layers.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::KeptLayers;
using test::kinds;

constexpr int64_t kRows = 4096, kWidth = 256;
constexpr int64_t kBytes = kRows * kWidth * 4;  // of an activation

MemoryPeak peak_of(const KeptLayers& kept, int64_t excess) {
  MemoryPeak peak{.excess = excess};
  for (const auto* values : {&kept.products, &kept.activations}) {
    peak.alive.insert(peak.alive.end(), values->begin(), values->end());
  }
  return peak;
}

// Reader number `i` of the value.
const Op* reader(const Module& m, const Value* v, size_t i) {
  return compute_uses(m.main->body).at(v).at(i);
}

TEST(Rematerialise, WhatIsReadLateIsComputedThere) {
  GraphBuilder b;
  const KeptLayers kept = test::kept_layers(b, 3, kRows, kWidth);
  Module& m = b.module();
  const std::string before = kinds(m);
  // Of one layer alone: the earliest, whose value is kept longest. A margin adds nothing to it.
  EXPECT_EQ(rematerialise(m, peak_of(kept, kBytes / 4)), kBytes);
  verify(m);
  EXPECT_EQ(kinds(m).size(), before.size() + std::string("logistic multiply ").size());
  EXPECT_EQ(m.late.size(), 2U);
  EXPECT_EQ(m.late_groups, 1);
  const auto& ops = m.main->body.ops;
  const auto dot = std::ranges::find_if(ops, [&](const auto& op) {
    return op->kind == Kind::kDotGeneral && !op->operands.empty() &&
           op->operands[0]->def != nullptr && m.late.contains(op->operands[0]->def->id);
  });
  ASSERT_NE(dot, ops.end());
  const Op* again = (*dot)->operands[0]->def;
  EXPECT_EQ(std::prev(dot)->get(), again);  // right in front of it
  EXPECT_EQ(again->kind, Kind::kMultiply);
  EXPECT_EQ(again->operands[0], kept.products[0]);
  EXPECT_EQ(reader(m, kept.activations[0], 0)->operands[0], kept.activations[0]);  // the early one
  EXPECT_EQ(compute_uses(m.main->body).at(kept.activations[0]).size(), 1U);
}

TEST(Rematerialise, TakesAsMuchAsIsAskedForIfThereIsSoMuch) {
  GraphBuilder some, all;
  EXPECT_GE(
      rematerialise(some.module(), peak_of(test::kept_layers(some, 6, kRows, kWidth), 2 * kBytes)),
      2 * kBytes);
  EXPECT_LT(some.module().late_groups, 5);
  const int64_t made =
      rematerialise(all.module(), peak_of(test::kept_layers(all, 6, kRows, kWidth), 99 * kBytes));
  EXPECT_EQ(made, 6 * kBytes);
  verify(all.module());
}

// What is needed for it dies before, is not alive, or is the value itself.
TEST(Rematerialise, LeavesWhatWouldKeepOthersLonger) {
  GraphBuilder b;
  const KeptLayers kept = test::kept_layers(b, 3, kRows, kWidth);
  EXPECT_EQ(rematerialise(b.module(),
                          {.alive = {kept.activations[0], kept.activations[2]}, .excess = kBytes}),
            0);
  EXPECT_TRUE(b.module().late.empty());
  EXPECT_EQ(rematerialise(b.module(), {.excess = kBytes}), 0);
}

// A donated argument may be overwritten by then; a result is there in the end anyway.
TEST(Rematerialise, KeepsResultsAndWhatIsMadeOfReplacedArguments) {
  const Type type = f32({kRows, kWidth});
  for (const bool donated : {false, true}) {
    GraphBuilder b;
    Value* x = b.arg(type);
    Value* w = b.arg(f32({kWidth, kWidth}));
    b.module().main->args[0].alias_result = donated ? 1 : -1;
    Value* y = b.op(Kind::kNegate, {x}, type);
    Value* z = b.op(Kind::kNegate, {y}, type);
    Value* s = b.op(Kind::kDotGeneral, {y, w}, type, DotAttrs{{}, {}, {1}, {0}});
    Value* last = b.op(Kind::kMultiply, {s, y}, type);
    Module& m = b.done({z, last});
    const int64_t made = rematerialise(m, {.alive = {y, z, s}, .excess = kBytes});
    EXPECT_EQ(made, donated ? 0 : kBytes);
    verify(m);
  }
}

// The reader sees the value through a view. Nobody reads the former one any more.
TEST(Rematerialise, GoesThroughViews) {
  const Type type = f32({kRows, kWidth}), turned = f32({kWidth, kRows});
  GraphBuilder b;
  Value* x = b.arg(type);
  Value* w = b.arg(f32({kWidth, kWidth}));
  Value* y = b.op(Kind::kExp, {x}, type);
  Value* view = b.op(Kind::kTranspose, {y}, turned, DimsAttrs{{1, 0}});
  Value* peak = b.op(Kind::kDotGeneral, {y, w}, type, DotAttrs{{}, {}, {1}, {0}});
  Value* late =
      b.op(Kind::kDotGeneral, {view, peak}, f32({kWidth, kWidth}), DotAttrs{{}, {}, {1}, {0}});
  Module& m = b.done({late});
  EXPECT_EQ(rematerialise(m, {.alive = {y, peak}, .excess = kBytes}), kBytes);
  verify(m);
  EXPECT_EQ(kinds(m), "exponential dot_general exponential transpose dot_general return");
}

// Two values of a product that is not kept: it is kept in their place. One alone would save
// nothing.
TEST(Rematerialise, KeepsOneValueInPlaceOfSeveralThatAreMadeOfIt) {
  const Type type = f32({kRows, kWidth});
  const DotAttrs attrs{{}, {}, {1}, {0}};
  for (const bool both : {true, false}) {
    GraphBuilder b;
    Value* x = b.arg(type);
    Value* w = b.arg(f32({kWidth, kWidth}));
    Value* bias = b.op(Kind::kBroadcastInDim, {b.arg(f32({kWidth}))}, type, DimsAttrs{{1}});
    Value* p = b.op(Kind::kDotGeneral, {x, w}, type, attrs);
    Value* sum = b.op(Kind::kAdd, {p, bias}, type);
    Value* y = b.op(Kind::kExp, {sum}, type);
    Value* slope = b.op(Kind::kSine, {sum}, type);
    Value* peak = b.op(Kind::kDotGeneral, {y, w}, type, attrs);
    Value* scaled = b.op(Kind::kMultiply, {peak, slope}, type);
    Value* late = b.op(Kind::kDotGeneral, {both ? y : x, scaled}, f32({kWidth, kWidth}),
                       DotAttrs{{}, {}, {0}, {0}});
    Module& m = b.done({late, scaled});
    MemoryPeak most{.alive = {slope, peak}, .excess = kBytes / 4};
    if (both) {
      most.alive.push_back(y);
    }
    EXPECT_EQ(rematerialise(m, most), both ? kBytes : 0);
    verify(m);
    EXPECT_EQ(compute_uses(m.main->body).at(p).size(), both ? 3U : 1U);
    EXPECT_EQ(m.late_groups, both ? 2 : 0);
  }
}

// What a value is read by in front of the peak, but is not kept, is computed late, and reads it
// there.
TEST(Rematerialise, ComputesWhatIsReadThroughEarlyOpsAgain) {
  const Type type = f32({kRows, kWidth});
  const DotAttrs attrs{{}, {}, {1}, {0}};
  GraphBuilder b;
  Value* x = b.arg(type);
  Value* w = b.arg(f32({kWidth, kWidth}));
  Value* y = b.op(Kind::kTanh, {x}, type);
  Value* slope = b.op(Kind::kSubtract, {b.constant(type, 1), y}, type);  // in front of the peak
  Value* peak = b.op(Kind::kDotGeneral, {y, w}, type, attrs);
  Value* scaled = b.op(Kind::kMultiply, {peak, slope}, type);
  Module& m = b.done({b.op(Kind::kMultiply, {scaled, y}, type)});
  EXPECT_EQ(rematerialise(m, {.alive = {y, peak}, .excess = kBytes}), kBytes);
  verify(m);
  EXPECT_EQ(kinds(m), "tanh constant dot_general tanh subtract multiply multiply return");
  EXPECT_EQ(compute_uses(m.main->body).at(y).size(), 1U);  // by the product
}

// A barrier is a view of each operand: its other results are none of the value.
TEST(Rematerialise, GoesThroughBarriers) {
  const Type type = f32({kRows, kWidth});
  const DotAttrs attrs{{}, {}, {1}, {0}};
  GraphBuilder b;
  Value* x = b.arg(type);
  Value* w = b.arg(f32({kWidth, kWidth}));
  Value* y = b.op(Kind::kExp, {x}, type);
  Value* peak = b.op(Kind::kDotGeneral, {y, w}, type, attrs);
  const Op* barrier = b.region().append(Kind::kOptimizationBarrier, {peak, y}, {type, type},
                                        NoAttrs{}, unknown_loc());
  Value* other = b.op(Kind::kDotGeneral, {barrier->result(0), w}, type, attrs);
  Module& m = b.done({b.op(Kind::kMultiply, {other, barrier->result(1)}, type)});
  EXPECT_EQ(rematerialise(m, {.alive = {y, peak}, .excess = kBytes}), kBytes);
  verify(m);
  EXPECT_EQ(kinds(m),
            "exponential dot_general optimization_barrier dot_general exponential "
            "optimization_barrier multiply return");
}

// What is computed early and read late only is computed late: it is moved.
TEST(Rematerialise, MovesWhatNobodyReadsEarly) {
  const Type type = f32({kRows, kWidth});
  GraphBuilder b;
  Value* x = b.arg(type);
  Value* w = b.arg(f32({kWidth, kWidth}));
  Value* y = b.op(Kind::kExp, {x}, type);
  Value* peak = b.op(Kind::kDotGeneral, {x, w}, type, DotAttrs{{}, {}, {1}, {0}});
  Module& m = b.done({b.op(Kind::kMultiply, {peak, y}, type)});
  EXPECT_EQ(rematerialise(m, {.alive = {y, peak}, .excess = kBytes}), kBytes);
  verify(m);
  EXPECT_EQ(kinds(m), "dot_general exponential multiply return");
}

}  // namespace
}  // namespace tpu::compiler
