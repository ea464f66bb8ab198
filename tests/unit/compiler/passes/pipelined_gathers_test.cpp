// Pass `pipelined_gathers`: which loops gather for their next iteration, and that the bits stay.
#include "passes/pipelined_gathers.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "control_builder.hpp"
#include "ir/control.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;
using test::RegionBuilder;
using test::Values;

constexpr int64_t kCores = 2, kTrips = 4, kWidth = 512, kRows = 2;
const Type kShard = f32({kWidth / kCores, kWidth}), kWhole = f32({kWidth, kWidth});

Tensor tensor_of(const Type& type, int seed) {
  Tensor t = make_tensor(type);
  for (int64_t i = 0; i < type.count(); ++i) {
    const float f = static_cast<float>((7 * i + 3 * seed) % 11) / 64 - 0.07f;
    std::memcpy(t.data.data() + 4 * i, &f, 4);
  }
  return t;
}

Value* product(RegionBuilder& r, Value* x, Value* w) {
  DotAttrs attrs;
  attrs.lhs_contract = {1};
  attrs.rhs_contract = {0};
  return r.op(Kind::kDotGeneral, {x, w}, x->type, attrs);
}

Value* gather(RegionBuilder& r, Value* shard) {
  CollectiveAttrs attrs;
  attrs.groups = {{0, 1}};
  return r.op(Kind::kAllGather, {shard}, kWhole, attrs);
}

// The weights of iteration `i`.
Value* layer(RegionBuilder& r, Value* stack, Value* i) {
  Value* zero = r.number(i32({}), 0);
  Value* row = r.slice(stack, {i, zero, zero}, {1, kShard.dims[0], kWidth});
  return r.op(Kind::kReshape, {row}, kShard);
}

// A loop over layers whose body is made by `body(r, x, weights of the iteration)`.
template <typename Body>
Module& layers(GraphBuilder& b, const Body& body) {
  Value* x = b.arg(f32({kRows, kWidth}));
  Value* stack = b.arg(f32({kTrips, kShard.dims[0], kWidth}));
  RegionBuilder r(b.region());
  const Values out = r.times(kTrips, {x}, [&](RegionBuilder& in, const Values& a) {
    return Values{body(in, a[1], layer(in, stack, a[0]))};
  });
  return b.done({out[0]});
}

const Op& loop_of(const Module& m) {
  const Op* found = nullptr;
  walk(m.main->body, [&](const Op& op) { found = op.kind == Kind::kWhile ? &op : found; });
  return *found;
}

std::vector<std::vector<Tensor>> run(const Module& m) {
  std::vector<std::vector<Tensor>> args(kCores);
  for (int core = 0; core < kCores; ++core) {
    int seed = core;
    for (const auto& a : m.main->body.args) {
      args[static_cast<size_t>(core)].push_back(tensor_of(a->type, seed += 5));
    }
  }
  return interpret(m, args);
}

TEST(PipelinedGathers, ComeInTheIterationBefore) {
  GraphBuilder b(kCores);
  Module& m = layers(b, [](RegionBuilder& r, Value* x, Value* w) {
    Value* y = product(r, x, gather(r, w));
    Value* other = r.number(kWhole, 0.01);
    return product(r, y, other);
  });
  const auto before = run(m);
  EXPECT_TRUE(pipeline_gathers(m));
  m.number_ops();
  verify(m);
  const Op& loop = loop_of(m);
  EXPECT_TRUE(counted_loop(loop).has_value());
  ASSERT_EQ(loop.operands.size(), 3u);
  EXPECT_EQ(loop.operands[2]->def->kind, Kind::kAllGather);
  const Region& body = *loop.regions[1];
  const Value* next = body.terminator()->operands[2];
  EXPECT_EQ(next->def->kind, Kind::kAllGather);
  // Behind the first product, which reads what is carried, and in front of the second one.
  EXPECT_EQ(body.args[2]->type, kWhole);
  const auto after = run(m);
  for (size_t core = 0; core < kCores; ++core) {
    EXPECT_EQ(before[core][0].data, after[core][0].data);
  }
  EXPECT_FALSE(pipeline_gathers(m));
}

TEST(PipelinedGathers, NeedAProductBehindTheirReader) {
  GraphBuilder b(kCores);
  Module& m =
      layers(b, [](RegionBuilder& r, Value* x, Value* w) { return product(r, x, gather(r, w)); });
  EXPECT_FALSE(pipeline_gathers(m));
}

TEST(PipelinedGathers, StayBehindAProduct) {
  GraphBuilder b(kCores);
  Module& m = layers(b, [](RegionBuilder& r, Value* x, Value* w) {
    Value* y = product(r, x, r.number(kWhole, 0.01));
    return product(r, product(r, y, gather(r, w)), r.number(kWhole, 0.02));
  });
  EXPECT_FALSE(pipeline_gathers(m));
}

// What an iteration computes is not known in the one before.
TEST(PipelinedGathers, StayWithWhatIsCarried) {
  GraphBuilder b(kCores);
  Value* x = b.arg(f32({kRows, kWidth}));
  Value* shard = b.arg(kShard);
  RegionBuilder r(b.region());
  const Values out = r.times(kTrips, {x, shard}, [&](RegionBuilder& in, const Values& a) {
    Value* y = product(in, a[1], gather(in, a[2]));
    return Values{product(in, y, in.number(kWhole, 0.01)), in.add(a[2], a[2])};
  });
  EXPECT_FALSE(pipeline_gathers(b.done({out[0]})));
}

}  // namespace
}  // namespace tpu::compiler
