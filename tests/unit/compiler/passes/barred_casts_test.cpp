// Which gathers behind a barrier read what was cast in front of it.
#include "passes/barred_casts.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;

const Type kPart = f32({64, 64});

Type in_bf16(Type type) {
  type.elem = Elem::kBf16;
  return type;
}

struct Layer {
  GraphBuilder b{2};
  Value* w = b.arg(kPart);
  Value* g = b.op(Kind::kNegate, {b.arg(kPart)}, kPart);

  Value* cast(Value* v) { return b.op(Kind::kConvert, {v}, in_bf16(v->type)); }
  Value* gather(Value* part) {
    CollectiveAttrs attrs;
    attrs.groups = {{0, 1}};
    Type type = part->type;
    type.dims[0] *= 2;
    return b.op(Kind::kAllGather, {part}, type, attrs);
  }
  // `v` once `g` is there.
  Value* barred(Value* v) {
    return b.region()
        .append(Kind::kOptimizationBarrier, {v, g}, {v->type, g->type}, NoAttrs{}, unknown_loc())
        ->result(0);
  }
};

TEST(BarredCasts, AGatherTakesTheCastOfTheForwardPass) {
  Layer l;
  Value* cast = l.cast(l.w);
  Value* first = l.gather(cast);
  Value* second = l.gather(l.cast(l.barred(l.w)));
  Module& m = l.b.done({first, second});
  EXPECT_TRUE(cast_in_front_of_barriers(m));
  verify(m);
  EXPECT_EQ(kinds(m),
            "negate convert all_gather optimization_barrier optimization_barrier convert "
            "all_gather return");
  const Op& barrier = *second->def->operands[0]->def;
  ASSERT_EQ(barrier.kind, Kind::kOptimizationBarrier);
  EXPECT_EQ(barrier.operands, (std::vector<Value*>{cast, l.g}));  // waits as before
  EXPECT_FALSE(cast_in_front_of_barriers(m));
}

TEST(BarredCasts, WithoutACastInFrontThereIsNothingToTake) {
  Layer l;
  Value* second = l.gather(l.cast(l.barred(l.w)));
  Module& m = l.b.done({second, l.gather(l.cast(l.w))});
  EXPECT_FALSE(cast_in_front_of_barriers(m));
}

TEST(BarredCasts, OtherReadersCastAgain) {
  Layer l;
  Value* first = l.gather(l.cast(l.w));
  Value* product = l.b.op(Kind::kNegate, {l.cast(l.barred(l.w))}, in_bf16(kPart));
  EXPECT_FALSE(cast_in_front_of_barriers(l.b.done({first, product})));
}

// A value that the program makes would be kept for it.
TEST(BarredCasts, OnlyOfArguments) {
  Layer l;
  Value* made = l.b.op(Kind::kNegate, {l.w}, kPart);
  Value* first = l.gather(l.cast(made));
  EXPECT_FALSE(cast_in_front_of_barriers(l.b.done({first, l.gather(l.cast(l.barred(made)))})));
}

}  // namespace
}  // namespace tpu::compiler
