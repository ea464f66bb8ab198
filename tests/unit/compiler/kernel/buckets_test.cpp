// The sums that travel together, as one op of the graph.
#include "kernel/buckets.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int64_t kPiece = 4096;

Value* sum_of(GraphBuilder& b, Value* x, Kind reducer = Kind::kAdd) {
  CollectiveAttrs both;
  both.groups = {{0, 1}};
  return b.with_body(b.op(Kind::kAllReduce, {x}, x->type, both), reducer);
}

// Small arrays and the rest of a large one travel at the end, in one exchange.
TEST(JoinBuckets, SumsThatTravelTogetherAreOneOp) {
  GraphBuilder b(2);
  Value* small = sum_of(b, b.arg(f32({3})));
  Value* large = sum_of(b, b.op(Kind::kAbs, {b.arg(f32({1025}))}, f32({1025})));
  Value* twice = b.op(Kind::kAdd, {small, small}, small->type);
  Module& m = b.done({twice, large});
  join_buckets(m.main->body, kPiece);
  verify(m);
  EXPECT_EQ(kinds(m), "abs all_reduce add return");
  ASSERT_EQ(small->def, large->def);
  EXPECT_EQ(small->def->operand_type(static_cast<size_t>(small->index)), small->type);
  EXPECT_EQ(small->def->result(static_cast<size_t>(large->index)), large);
}

TEST(JoinBuckets, OtherReducersAndSumsOfSumsStayApart) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({3}));
  Value* first = sum_of(b, x);
  Value* largest = sum_of(b, x, Kind::kMaximum);
  Value* again = sum_of(b, b.op(Kind::kAdd, {first, largest}, x->type));
  Module& m = b.done({again});
  join_buckets(m.main->body, kPiece);
  verify(m);
  EXPECT_EQ(kinds(m), "all_reduce all_reduce add all_reduce return");
}

// The compiler makes another op of it later.
TEST(JoinBuckets, WhatNoExchangeCanReduceLeavesTheGraphAlone) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({3}));
  Module& m = b.done({sum_of(b, x), sum_of(b, x, Kind::kSubtract)});
  join_buckets(m.main->body, kPiece);
  verify(m);
  EXPECT_EQ(kinds(m), "all_reduce all_reduce return");
}

}  // namespace
}  // namespace tpu::compiler::test
