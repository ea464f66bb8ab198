// Pass `dce`: unused chains go, side effects and arguments stay.
#include "passes/dce.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;

TEST(Dce, RemovesChainsInOneSweep) {
  GraphBuilder b;
  Value* x = b.arg(f32({}));
  b.op(Kind::kExp, {b.op(Kind::kNegate, {x}, f32({}))}, f32({}));
  Value* y = b.op(Kind::kAbs, {x}, f32({}));
  Module& m = b.done({y});
  EXPECT_EQ(remove_dead_ops(m), 2u);
  verify(m);
  EXPECT_EQ(kinds(m), "abs return");
}

TEST(Dce, LooksIntoRegions) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* r = b.reduce(x, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  Region& body = *r->def->regions[0];
  auto dead = std::make_unique<Op>();
  dead->kind = Kind::kNegate;
  dead->operands = {body.args[0].get()};
  dead->add_result(f32({}));
  dead->loc = unknown_loc();
  dead->parent = &body;
  body.ops.insert(body.ops.begin(), std::move(dead));
  Module& m = b.done({r});
  EXPECT_EQ(remove_dead_ops(m), 1u);
  verify(m);
}

TEST(Dce, KeepsUnusedArgumentsAndSideEffects) {
  GraphBuilder b;
  Value* x = b.arg(f32({}));
  b.arg(f32({7}));
  b.op(Kind::kCustomCall, {x}, f32({}), CustomCallAttrs{"log", "", true});
  Module& m = b.done({x});
  EXPECT_EQ(remove_dead_ops(m), 0u);
  EXPECT_EQ(m.main->body.args.size(), 2u);
}

}  // namespace
}  // namespace tpu::compiler
