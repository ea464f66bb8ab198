// Pass `multiply_add`: which products and sums are rounded once.
#include "passes/multiply_add.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"
#include "passes/dce.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;

const Type kArray = f32({8, 4});

Value* spread(GraphBuilder& b, Value* scalar, const Type& type = kArray) {
  return b.op(Kind::kBroadcastInDim, {scalar}, type, DimsAttrs{});
}

// The kinds that are left behind the pass.
std::string after(Module& m) {
  fuse_multiply_add(m);
  remove_dead_ops(m);
  verify(m);
  return kinds(m);
}

TEST(MultiplyAdd, TakesScalarsAndSplatsOnBothSides) {
  for (const bool product_first : {true, false}) {
    for (const bool scale_first : {true, false}) {
      GraphBuilder b;
      Value* x = b.arg(kArray);
      Value* scale = spread(b, b.arg(f32({})));
      Value* offset = b.constant(kArray, 2);
      Value* product = scale_first ? b.op(Kind::kMultiply, {scale, x}, kArray)
                                   : b.op(Kind::kMultiply, {x, scale}, kArray);
      Value* sum = product_first ? b.op(Kind::kAdd, {product, offset}, kArray)
                                 : b.op(Kind::kAdd, {offset, product}, kArray);
      const std::string place = to_string(*sum->def->loc);
      Module& m = b.done({sum});
      EXPECT_EQ(after(m), "broadcast_in_dim constant multiply_add return");
      const Op& made = *m.main->body.terminator()->operands[0]->def;
      EXPECT_EQ(made.operands, (std::vector<Value*>{x, scale, offset}));
      EXPECT_EQ(to_string(*made.loc), place);
    }
  }
}

// As jax.shard_map over some axes of a mesh makes them of each value.
TEST(MultiplyAdd, LooksThroughShardingConstraints) {
  GraphBuilder b;
  Value* x = b.arg(kArray);
  const auto constrained = [&](Value* v) {
    return b.op(Kind::kShardingConstraint, {v}, v->type, ShardingAttrs{});
  };
  Value* scale = constrained(spread(b, b.arg(f32({}))));
  Value* product = constrained(b.op(Kind::kMultiply, {x, scale}, kArray));
  Value* sum = b.op(Kind::kAdd, {product, constrained(b.constant(kArray, 2))}, kArray);
  Module& m = b.done({sum});
  fuse_multiply_add(m);
  remove_dead_ops(m);
  const Op& made = *m.main->body.terminator()->operands[0]->def;
  ASSERT_EQ(made.kind, Kind::kMultiplyAdd);
  EXPECT_EQ(made.operands[0]->def->kind, Kind::kShardingConstraint);
  EXPECT_EQ(made.operands[0]->def->operands[0], x);
}

TEST(MultiplyAdd, SumOfAFusedSumStays) {
  GraphBuilder b;
  Value* scale = b.constant(kArray, 2);
  Value* sum = b.op(Kind::kMultiply, {b.arg(kArray), scale}, kArray);
  for (int i = 0; i < 2; ++i) {
    sum = b.op(Kind::kAdd, {sum, scale}, kArray);
  }
  EXPECT_EQ(after(b.done({sum})), "constant multiply_add add return");
}

TEST(MultiplyAdd, ConstrainedProductWithOtherUsersStays) {
  GraphBuilder b;
  Value* scale = spread(b, b.arg(f32({})));
  Value* product = b.op(Kind::kMultiply, {b.arg(kArray), scale}, kArray);
  Value* kept = b.op(Kind::kShardingConstraint, {product}, kArray, ShardingAttrs{});
  EXPECT_FALSE(fuse_multiply_add(b.done({b.op(Kind::kAdd, {kept, scale}, kArray), product})));
}

TEST(MultiplyAdd, OneElementIsAScalarWhateverItsShape) {
  GraphBuilder b;
  Value* x = b.arg(f32({}));
  Value* low = b.op(Kind::kReshape, {b.arg(f32({}))}, f32({1, 1}));
  Value* one = b.op(Kind::kMultiply, {x, x}, f32({}));
  one = b.op(Kind::kAdd, {one, x}, f32({}));
  Value* wide = b.arg(kArray);
  const DimsAttrs dims{{0, 1}};
  Value* spread_low = b.op(Kind::kBroadcastInDim, {low}, kArray, dims);
  wide = b.op(Kind::kMultiply, {wide, spread_low}, kArray);
  wide = b.op(Kind::kAdd, {wide, spread_low}, kArray);
  EXPECT_EQ(after(b.done({one, wide})),
            "reshape multiply_add broadcast_in_dim multiply_add return");
}

TEST(MultiplyAdd, LeavesArraysOtherUsersAndOtherTypes) {
  GraphBuilder b;
  Value* x = b.arg(kArray);
  Value* s = spread(b, b.arg(f32({})));
  const auto affine = [&](Value* scale, Value* offset, const Type& type) {
    return b.op(Kind::kAdd, {b.op(Kind::kMultiply, {x, scale}, type), offset}, type);
  };
  Value* by_array = affine(x, s, kArray);
  Value* plus_array = affine(s, x, kArray);
  Value* plus_row =
      affine(s, b.op(Kind::kBroadcastInDim, {b.arg(f32({4}))}, kArray, DimsAttrs{{1}}), kArray);
  Value* used_twice = affine(s, s, kArray);
  Value* product = used_twice->def->operands[0];
  const Type half{Elem::kBf16, kArray.dims};
  x = b.arg(half);
  Value* t = b.constant(half, 3);
  Value* narrow = affine(t, t, half);
  Module& m = b.done({by_array, plus_array, plus_row, used_twice, product, narrow});
  EXPECT_FALSE(fuse_multiply_add(m));
}

TEST(MultiplyAdd, LooksIntoLoops) {
  GraphBuilder b;
  const Type scalar = f32({});
  Value* out = b.op(Kind::kWhile, {b.arg(scalar)}, scalar);
  Region* condition = out->def->add_region();
  Value* x = condition->add_arg(scalar);
  Op* test = condition->append(Kind::kCompare, {x, x}, {test::i1({})},
                               CompareAttrs{CompareDirection::kLt}, unknown_loc());
  condition->append(Kind::kReturn, {test->result()}, {}, NoAttrs{}, unknown_loc());
  Region* body = out->def->add_region();
  Value* y = body->add_arg(scalar);
  Op* product = body->append(Kind::kMultiply, {y, y}, {scalar}, NoAttrs{}, unknown_loc());
  Op* sum = body->append(Kind::kAdd, {product->result(), y}, {scalar}, NoAttrs{}, unknown_loc());
  body->append(Kind::kReturn, {sum->result()}, {}, NoAttrs{}, unknown_loc());
  Module& m = b.done({out});
  EXPECT_TRUE(fuse_multiply_add(m));
  verify(m);
  EXPECT_EQ(m.main->body.ops[0]->regions[1]->terminator()->operands[0]->def->kind,
            Kind::kMultiplyAdd);
}

}  // namespace
}  // namespace tpu::compiler
