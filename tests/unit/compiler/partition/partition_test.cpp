// The global graph to the graph of one core: what shard_map's body and what stands around it
// become, and what is refused.
#include "partition/partition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distribution.hpp"
#include "ir/verify.hpp"
#include "passes/inline.hpp"

namespace tpu::compiler::test {
namespace {

using testing::HasSubstr;

// A global graph over eight cores: mesh a=4, b=2.
class Global : public GraphBuilder {
 public:
  Global() : GraphBuilder(8) {
    module().global = true;
    module().mesh.name = "mesh";
    module().mesh.axes = {{"a", 4}, {"b", 2}};
  }

  Value* arg_wanted(Type type, Cut cut) {
    Value* v = arg(std::move(type));
    module().main->args.back().wanted = by(std::move(cut));
    return v;
  }

  // shard_map whose body is |x| of one operand.
  Value* abs_map(Value* x, const Type& local, const Cut& in, const Cut& out,
                 std::vector<int> axes = {0, 1}) {
    ManualAttrs a{{by(in)}, {by(out)}, std::move(axes)};
    Value* y = op(Kind::kManualComputation, {x}, x->type, a);
    Region* body = y->def->add_region();
    Value* part = body->add_arg(local);
    Op* abs = body->append(Kind::kAbs, {part}, {local}, NoAttrs{}, y->def->loc);
    body->append(Kind::kReturn, {abs->result()}, {}, NoAttrs{}, y->def->loc);
    return y;
  }

  Module& local(std::vector<Value*> results) {
    Module& m = done(std::move(results));
    verify(m);
    inline_calls(m);
    splice(m);
    partition(m);
    verify(m);
    return m;
  }

  std::string refused(std::vector<Value*> results) {
    try {
      local(std::move(results));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

TEST(Partition, TheBodyOfShardMapIsSplicedInWithLocalShapes) {
  Global g;
  Value* x = g.arg(f32({16, 6}));
  const Module& m = g.local({g.abs_map(x, f32({4, 6}), {{0}, {}}, {{0}, {}})});
  EXPECT_EQ(kinds(m), "abs return");
  EXPECT_FALSE(m.global);
  EXPECT_EQ(x->type, f32({4, 6}));
  EXPECT_EQ(m.main->args[0].global, f32({16, 6}));
  EXPECT_EQ(m.main->args[0].sharding.dim_axes, (Cut{{0}, {}}));
  EXPECT_EQ(m.main->results[0].global, f32({16, 6}));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{0}, {}}));
}

TEST(Partition, OneDimensionIsCutByTwoAxesAndTwoByOneEach) {
  Global g;
  Value* x = g.arg(f32({16, 6}));
  Value* y = g.arg(f32({16, 6}));
  Value* a = g.abs_map(x, f32({2, 6}), {{0, 1}, {}}, {{0, 1}, {}});
  Value* b = g.abs_map(y, f32({4, 3}), {{0}, {1}}, {{0}, {1}});
  const Module& m = g.local({a, b});
  EXPECT_EQ(kinds(m), "abs abs return");
  EXPECT_EQ(x->type, f32({2, 6}));
  EXPECT_EQ(y->type, f32({4, 3}));
}

TEST(Partition, WhatStandsAroundRunsOnEveryCore) {
  Global g;
  Value* x = g.arg(f32({8}));
  Value* y = g.op(Kind::kNegate, {x}, f32({8}));
  const Module& m = g.local({g.abs_map(y, f32({8}), {}, {})});
  EXPECT_EQ(kinds(m), "negate abs return");
  EXPECT_EQ(x->type, f32({8}));
  EXPECT_TRUE(m.main->args[0].sharding.is_replicated());
}

// JAX could not name the sharding: a part of an axis has no name in a PartitionSpec.
TEST(Partition, NoPartOfAnAxisCutsAnArgumentOrAResult) {
  Global g;
  g.module().mesh.axes = {{"a:(1)2", 2}, {"a:(2)2", 2}, {"b", 2}};
  Value* x = g.arg_wanted(f32({8}), {{0, 1, 2}});
  Value* y = g.arg(f32({2, 4}));
  Value* z = g.op(Kind::kAdd, {g.op(Kind::kReshape, {x}, f32({2, 4})), y}, f32({2, 4}));
  const Module& m = g.local({z, g.op(Kind::kNegate, {x}, f32({8}))});
  EXPECT_EQ(m.main->args[0].sharding.dim_axes, (Cut{{0, 1, 2}}));
  EXPECT_EQ(m.main->args[1].sharding.dim_axes, Cut());
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, Cut());
  EXPECT_EQ(m.main->results[1].sharding.dim_axes, (Cut{{0, 1, 2}}));
  EXPECT_THAT(kinds(m), HasSubstr("dynamic_slice add")) << "the addition is on parts all the same";
}

TEST(Partition, AProgramMayAskForAPartOfAnAxis) {
  Global g;
  g.module().mesh.axes = {{"a:(1)2", 2}, {"a:(2)2", 2}, {"b", 2}};
  Value* x = g.arg_wanted(f32({8, 4}), {{1}, {2}});
  const Module& m = g.local({g.op(Kind::kNegate, {x}, f32({8, 4}))});
  EXPECT_EQ(m.main->args[0].sharding.dim_axes, (Cut{{1}, {2}}));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{}, {2}}));
}

TEST(Partition, ValuesGoFromOneShardMapToTheNext) {
  Global g;
  Value* x = g.arg_wanted(f32({16}), {{0}});
  Value* y = g.abs_map(x, f32({4}), {{0}}, {{0}});
  const Module& m = g.local({g.abs_map(y, f32({4}), {{0}}, {{0}})});
  ASSERT_EQ(kinds(m), "abs abs return");
  EXPECT_EQ(m.main->body.ops[1]->operands[0], m.main->body.ops[0]->result());
}

TEST(Partition, OneCopyMayBeReturnedInTwoShardings) {
  Global g;
  Value* x = g.arg(f32({4}));
  ManualAttrs a{{by({})}, {by({}), by({{0}})}, {0, 1}};
  Op* map =
      g.region().append(Kind::kManualComputation, {x}, {f32({4}), f32({16})}, a, unknown_loc());
  Region* body = map->add_region();
  Value* part = body->add_arg(f32({4}));
  body->append(Kind::kReturn, {part, part}, {}, NoAttrs{}, unknown_loc());
  const Module& m = g.local({map->result(0), map->result(1)});
  EXPECT_TRUE(m.main->results[0].sharding.is_replicated());
  EXPECT_EQ(m.main->results[1].sharding.dim_axes, Cut{{0}});
  EXPECT_EQ(m.main->body.terminator()->operands, (std::vector<Value*>{x, x}));
}

TEST(Partition, ConstraintsToWhatAnArrayIsAreDropped) {
  Global g;
  Value* x = g.arg(f32({8}));
  Value* y = g.op(Kind::kShardingConstraint, {x}, f32({8}), by({}));
  const Module& m = g.local({g.op(Kind::kAbs, {y}, f32({8}))});
  EXPECT_EQ(kinds(m), "abs return");
  EXPECT_EQ(m.main->body.ops[0]->operands[0], x);
}

TEST(Partition, OpenDimensionsMayStayCut) {
  Global g;
  Value* x = g.arg_wanted(f32({16, 2}), {{0}, {}});
  ShardingAttrs open;
  open.open = {true, false};
  Value* y = g.op(Kind::kShardingConstraint, {x}, f32({16, 2}), open);
  EXPECT_EQ(kinds(g.local({g.abs_map(y, f32({4, 2}), {{0}, {}}, {{0}, {}})})), "abs return");
}

ShardingAttrs alike(int64_t group, size_t rank) {
  ShardingAttrs a;
  a.open.assign(rank, true);
  a.group = group;
  return a;
}

// Also where nobody reads the array that says how.
TEST(Partition, ArraysOfAGroupLieAlike) {
  Global g;
  Value* x = g.arg_wanted(f32({16, 2}), {{0}, {1}});
  Value* y = g.arg(f32({16, 2}));
  g.op(Kind::kShardingConstraint, {x}, f32({16, 2}), alike(3, 2));
  Value* like = g.op(Kind::kShardingConstraint, {y}, f32({16, 2}), alike(3, 2));
  Value* other = g.op(Kind::kShardingConstraint, {y}, f32({16, 2}), alike(4, 2));
  const Module& m = g.local({like, other});
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{0}, {1}}));
  EXPECT_EQ(count_of(m.main->body, Kind::kShardingConstraint), 0);
}

// An axis that is the body's own does not cut there what it cuts outside.
TEST(Partition, GroupsEndWithTheBodyOfAShardMap) {
  Global g;
  Value* x = g.arg_wanted(f32({16}), {{0}});
  g.op(Kind::kShardingConstraint, {x}, f32({16}), alike(3, 1));
  Value* map =
      g.op(Kind::kManualComputation, {x}, f32({16}), ManualAttrs{{by({{0}})}, {by({{0}})}, {0}});
  Region* body = map->def->add_region();
  Value* part = body->add_arg(f32({4}));
  Op* same =
      body->append(Kind::kShardingConstraint, {part}, {f32({4})}, alike(3, 1), unknown_loc());
  Op* abs = body->append(Kind::kAbs, {same->result()}, {f32({4})}, NoAttrs{}, unknown_loc());
  body->append(Kind::kReturn, {abs->result()}, {}, NoAttrs{}, unknown_loc());
  EXPECT_EQ(kinds(g.local({map})), "reshape abs reshape return");
}

TEST(Partition, DonatedArgumentsTakeResultsOfTheirSharding) {
  Global g;
  Value* x = g.arg(f32({16}));
  g.module().main->args[0].donated = true;
  Value* y = g.arg(f32({16}));
  Value* whole = g.op(Kind::kNegate, {y}, f32({16}));
  const Module& m = g.local({whole, g.abs_map(x, f32({4}), {{0}}, {{0}})});
  EXPECT_EQ(m.main->args[0].alias_result, 1);
}

TEST(Partition, GraphsOfOneCoreStayAsTheyAre) {
  GraphBuilder b;
  Value* x = b.arg(f32({3}));
  Module& m = b.done({b.op(Kind::kAbs, {x}, f32({3}))});
  const std::string before = print(m);
  splice(m);
  partition(m);
  EXPECT_EQ(print(m), before);
}

TEST(Partition, OpsOutsideOfShardMapWorkOnParts) {
  Global g;
  Value* x = g.arg_wanted(f32({16}), {{0}});
  const Module& m = g.local({g.op(Kind::kAbs, {x}, f32({16}))});
  EXPECT_EQ(kinds(m), "abs return");
  EXPECT_EQ(m.main->body.args[0]->type, f32({4}));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, Cut{{0}});
  EXPECT_TRUE(m.moved.empty());
}

TEST(Partition, AnArrayThatArrivesInAnotherShardingIsMoved) {
  Global g;
  Value* x = g.arg_wanted(f32({16}), {{1}});
  const Module& m = g.local({g.abs_map(x, f32({4}), {{0}}, {{0}})});
  EXPECT_EQ(count_of(m.main->body, Kind::kAllGather), 1);
  EXPECT_EQ(count_of(m.main->body, Kind::kDynamicSlice), 1);
  ASSERT_EQ(m.moved.size(), 1u);
  EXPECT_EQ(m.moved[0].op, "sdy.manual_computation");
  EXPECT_EQ(m.moved[0].bytes, 16 * 4);
}

// The body is manual along a and cut along b by the pass.
TEST(Partition, AMeshAxisThatShardMapLeavesOpenIsCutToo) {
  Global g;
  Value* x = g.arg_wanted(f32({16, 6}), {{0}, {1}});
  const Module& m = g.local({g.abs_map(x, f32({4, 6}), {{0}, {}}, {{0}, {}}, {0})});
  EXPECT_EQ(count_of(m.main->body, Kind::kAbs), 1);
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{0}, {1}}));
  EXPECT_TRUE(m.moved.empty());
}

TEST(Partition, AnAxisThatCutsOneDimensionDoesNotCutAnotherForShardMap) {
  Global g;
  Value* x = g.arg_wanted(f32({16, 6}), {{}, {1}});
  Value* y = g.op(Kind::kAbs, {x}, f32({16, 6}));
  const Module& m = g.local({g.abs_map(y, f32({8, 6}), {{1}, {}}, {{1}, {}}, {1})});
  EXPECT_EQ(count_of(m.main->body, Kind::kAllToAll), 1);
  EXPECT_EQ(m.main->body.terminator()->operands[0]->type, f32({8, 6}));
}

TEST(Partition, ConstraintsMoveData) {
  Global cut;
  Value* x = cut.arg(f32({16}));
  const Module& a = cut.local({cut.op(Kind::kReshard, {x}, f32({16}), by({{0}}))});
  EXPECT_EQ(a.main->results[0].sharding.dim_axes, Cut{{0}});
  Global gather;
  Value* y = gather.arg_wanted(f32({16}), {{0}});
  const Module& b = gather.local({gather.op(Kind::kShardingConstraint, {y}, f32({16}), by({}))});
  EXPECT_EQ(kinds(b), "all_gather return");
  EXPECT_TRUE(b.main->results[0].sharding.is_replicated());
}

TEST(Partition, AResultThatIsWantedOtherwiseIsMoved) {
  Global g;
  Value* x = g.arg(f32({16}));
  Module& m = g.done({g.abs_map(x, f32({4}), {{0}}, {{0}})});
  m.main->results[0].wanted = by({});
  splice(m);
  partition(m);
  verify(m);
  EXPECT_EQ(count_of(m.main->body, Kind::kAllGather), 1);
  EXPECT_TRUE(m.main->results[0].sharding.is_replicated());
}

TEST(Partition, AnArgumentThatIsReturnedInAnotherShardingArrivesAsItIs) {
  Global g;
  Value* x = g.arg_wanted(f32({16, 6}), {{}, {}});
  Module& m = g.done({x});
  m.main->results[0].wanted = by({{0}, {1}});
  splice(m);
  partition(m);
  verify(m);
  EXPECT_TRUE(m.main->args[0].sharding.is_replicated());
  EXPECT_EQ(m.main->body.args[0]->type, f32({16, 6}));
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, (Cut{{0}, {1}}));
  EXPECT_EQ(m.main->body.terminator()->operands[0]->type, f32({4, 3}));
}

TEST(Partition, ResultsThatCannotBeCutEquallyAreRefused) {
  Global g;
  Value* x = g.arg(f32({6}));
  Module& m = g.done({g.op(Kind::kAbs, {x}, f32({6}))});
  m.main->results[0].wanted = by({{0}});
  splice(m);
  EXPECT_THROW(partition(m), Error);
}

TEST(Partition, ShardMapMayStandInABranchOfACalledFunction) {
  Global g;
  auto f = std::make_unique<Function>();
  f->name = "f";
  f->loc = unknown_loc();
  f->args.push_back({"", f32({16}), {}, -1, false});
  f->results.push_back({"", f32({16}), {}});
  Value* x = f->body.add_arg(f32({16}));
  ManualAttrs a{{by({{0}})}, {by({{0}})}, {0, 1}};
  Op* map = f->body.append(Kind::kManualComputation, {x}, {f32({16})}, a, unknown_loc());
  Region* body = map->add_region();
  body->append(Kind::kReturn, {body->add_arg(f32({4}))}, {}, NoAttrs{}, unknown_loc());
  f->body.append(Kind::kReturn, {map->result()}, {}, NoAttrs{}, unknown_loc());
  g.module().functions.push_back(std::move(f));
  Value* p = g.arg(i1({}));
  Value* y = g.arg(f32({16}));
  Value* choice = g.op(Kind::kIf, {p}, f32({16}));
  for (int side = 0; side < 2; ++side) {
    Region* branch = choice->def->add_region();
    Op* call = branch->append(Kind::kCall, {y}, {f32({16})}, CallAttrs{"f", ""}, unknown_loc());
    branch->append(Kind::kReturn, {call->result()}, {}, NoAttrs{}, unknown_loc());
  }
  const Module& m = g.local({choice});
  EXPECT_EQ(m.main->results[0].sharding.dim_axes, Cut{{0}});
  EXPECT_TRUE(m.moved.empty());
}

TEST(GlobalGraph, TheVerifierKnowsBothForms) {
  Global wrong;
  Value* x = wrong.arg(f32({16}));
  EXPECT_THAT(wrong.refused({wrong.abs_map(x, f32({8}), {{0}}, {{0}})}),
              HasSubstr("operand 0 has the wrong local shape"));
  Global uneven;
  Value* y = uneven.arg(f32({6}));
  EXPECT_THAT(uneven.refused({uneven.abs_map(y, f32({1}), {{0}}, {{0}})}),
              HasSubstr("dimension 0 of f32[6] cannot be sharded into 4 equal parts"));
  Global local;
  Value* z = local.arg(f32({16}));
  Module& m = local.done({local.abs_map(z, f32({4}), {{0}}, {{0}})});
  m.global = false;
  EXPECT_THROW(verify(m), Error);
}

}  // namespace
}  // namespace tpu::compiler::test
