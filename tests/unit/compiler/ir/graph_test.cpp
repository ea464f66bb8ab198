// Building, printing, copying and querying graphs; meshes and shardings.
#include "ir/graph.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;

TEST(Graph, PrintsStableText) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 3}));
  Value* zero = b.constant(f32({}), 0);
  Value* sum = b.reduce(x, zero, {1}, f32({2}), Kind::kAdd);
  const Module& m = b.done({sum});
  EXPECT_EQ(print(m),
            "module @test cores=1\n"
            "func @main(%0: f32[2,3]) {\n"
            "  %1 = constant {value=0} : f32[]\n"
            "  %2 = reduce %0, %1 {dims=[1]} : f32[2] (%3: f32[], %4: f32[]) {\n"
            "    %5 = add %3, %4 : f32[]\n"
            "    return %5\n"
            "  }\n"
            "  return %2\n"
            "}\n");
}

TEST(Graph, NamesOfKindsComeBack) {
  for (int i = 0; i <= static_cast<int>(Kind::kReturn); ++i) {
    const auto kind = static_cast<Kind>(i);
    EXPECT_EQ(kind_from_name(kind_name(kind)), kind);
  }
  EXPECT_FALSE(kind_from_name("infeed"));
}

TEST(Graph, SimpleReducerSeesThroughOperandOrder) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* zero = b.constant(f32({}), 0);
  Value* r = b.reduce(x, zero, {0}, f32({}), Kind::kMaximum);
  Region& body = *r->def->regions[0];
  EXPECT_EQ(simple_reducer(body), Kind::kMaximum);
  std::swap(body.ops[0]->operands[0], body.ops[0]->operands[1]);
  EXPECT_EQ(simple_reducer(body), Kind::kMaximum);
  body.ops[0]->operands[0] = body.ops[0]->operands[1];
  EXPECT_FALSE(simple_reducer(body));
  body.ops[0]->kind = Kind::kSubtract;
  EXPECT_FALSE(simple_reducer(body));
}

TEST(Graph, CopiesRegionsAndMapsOperands) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* y = b.arg(f32({2}));
  Value* zero = b.constant(f32({}), 0);
  Value* r = b.reduce(x, zero, {0}, f32({}), Kind::kAdd);
  std::unordered_map<const Value*, Value*> map = {{x, y}};
  Op* copy = clone_op(*r->def, b.region(), map);
  EXPECT_EQ(copy->operands[0], y);
  EXPECT_EQ(copy->operands[1], zero);
  EXPECT_EQ(map.at(r), copy->result());
  ASSERT_EQ(copy->regions.size(), 1u);
  EXPECT_EQ(simple_reducer(*copy->regions[0]), Kind::kAdd);
  EXPECT_NE(copy->regions[0]->args[0].get(), r->def->regions[0]->args[0].get());
}

TEST(Graph, FindsUsersInsideOfRegions) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* zero = b.constant(f32({}), 0);
  Value* r = b.reduce(x, zero, {0}, f32({}), Kind::kAdd);
  const Value* inner = r->def->regions[0]->args[0].get();
  const Uses uses = compute_uses(b.region());
  EXPECT_EQ(uses.at(x).size(), 1u);
  EXPECT_EQ(uses.at(inner)[0]->kind, Kind::kAdd);
}

TEST(Sharding, CutsByAxesMajorFirst) {
  const Mesh mesh{"m", {{"a", 2}, {"b", 4}}, {}};
  const Sharding both{{{0, 1}, {}}};
  EXPECT_EQ(both.parts(mesh, 0), 8);
  EXPECT_EQ(both.shard_index(mesh, 6, 2), (Dims{6, 0}));
  const Sharding swapped{{{1}, {0}}};
  EXPECT_EQ(swapped.shard_index(mesh, 6, 2), (Dims{2, 1}));
  EXPECT_TRUE(Sharding{}.is_replicated());
}

TEST(Mesh, FollowsDeviceIds) {
  const Mesh mesh{"m", {{"a", 2}}, {1, 0}};
  EXPECT_EQ(mesh.coordinates(0), (Dims{1}));
  EXPECT_EQ(mesh.coordinates(1), (Dims{0}));
}

}  // namespace
}  // namespace tpu::compiler
