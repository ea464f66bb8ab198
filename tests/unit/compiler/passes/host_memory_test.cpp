// Pass `host_memory`: pairs of placements become transfers, others go, and what stays in HBM is
// noted.
#include "passes/host_memory.hpp"

#include <gtest/gtest.h>

#include "control_builder.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::kinds;
using test::RegionBuilder;
using test::Values;

Value* placed(GraphBuilder& b, Value* v, MemoryKind kind) {
  return b.op(Kind::kCustomCall, {v}, v->type,
              CustomCallAttrs{std::string(kPlacementTarget),
                              std::string(memory_kind_name(kind)),
                              false,
                              {v->type},
                              {v->type}});
}

TEST(HostMemory, NamesItsKinds) {
  for (const auto kind :
       {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kUnpinnedHost}) {
    EXPECT_EQ(memory_kind_of(memory_kind_name(kind)), kind);
  }
  EXPECT_EQ(memory_kind_of("host"), std::nullopt);
  EXPECT_NE(unknown_memory_kind("host").find("'host'"), std::string::npos);
}

TEST(HostMemory, MakesTransfersOfWhatComesBack) {
  GraphBuilder b;
  Value* x = b.op(Kind::kAbs, {b.arg(f32({4}))}, f32({4}));
  Value* there = placed(b, x, MemoryKind::kPinnedHost);
  Value* other = placed(b, there, MemoryKind::kUnpinnedHost);
  Value* y = b.op(Kind::kAdd,
                  {placed(b, there, MemoryKind::kDevice), placed(b, other, MemoryKind::kDevice)},
                  f32({4}));
  Module& m = b.done({y});
  keep_in_host_memory(m);
  verify(m);
  EXPECT_EQ(kinds(m), "abs send recv recv add return");
  for (const size_t i : {1u, 2u, 3u}) {
    const auto& attrs = m.main->body.ops[i]->as<HostAttrs>();
    EXPECT_TRUE(attrs.memory);
    EXPECT_EQ(attrs.channel, 1);
    EXPECT_EQ(attrs.partition, -1);
  }
  EXPECT_TRUE(m.notes.empty());
  keep_in_host_memory(m);  // nothing is left to do
  EXPECT_EQ(kinds(m), "abs send recv recv add return");
}

TEST(HostMemory, GivesEachArrayItsChannel) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* first = placed(b, x, MemoryKind::kPinnedHost);
  Value* second = placed(b, x, MemoryKind::kPinnedHost);
  Module& m =
      b.done({placed(b, first, MemoryKind::kDevice), placed(b, second, MemoryKind::kDevice)});
  keep_in_host_memory(m);
  EXPECT_EQ(kinds(m), "send send recv recv return");
  EXPECT_EQ(m.main->body.ops[3]->as<HostAttrs>().channel, 2);
}

// As jax.checkpoint has it between the forward and the backward pass.
TEST(HostMemory, LooksThroughBarriers) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* there = placed(b, x, MemoryKind::kPinnedHost);
  const Op* barrier = b.region().append(Kind::kOptimizationBarrier, {x, there},
                                        {f32({4}), f32({4})}, NoAttrs{}, unknown_loc());
  Module& m = b.done({placed(b, barrier->result(1), MemoryKind::kDevice), barrier->result(0)});
  keep_in_host_memory(m);
  verify(m);
  EXPECT_EQ(kinds(m), "send optimization_barrier recv return");
  EXPECT_TRUE(m.notes.empty());
}

// Arguments come, and results go, between programs.
TEST(HostMemory, DropsPlacementsOfArgumentsAndResults) {
  GraphBuilder b;
  Value* x = placed(b, b.arg(f32({4})), MemoryKind::kDevice);
  Value* y = b.op(Kind::kAbs, {x}, f32({4}));
  Module& m = b.done({placed(b, y, MemoryKind::kUnpinnedHost), y});
  keep_in_host_memory(m);
  verify(m);
  EXPECT_EQ(kinds(m), "abs return");
  EXPECT_EQ(m.main->results.at(0).memory, MemoryKind::kUnpinnedHost);
  EXPECT_EQ(m.main->results.at(1).memory, MemoryKind::kDevice);
  EXPECT_TRUE(m.notes.empty());
}

Value* placed(RegionBuilder& r, Value* v, MemoryKind kind) {
  return r.op(Kind::kCustomCall, {v}, v->type,
              CustomCallAttrs{std::string(kPlacementTarget),
                              std::string(memory_kind_name(kind)),
                              false,
                              {v->type},
                              {v->type}});
}

// A loop that stacks what it puts away, as a scan does; `start`: of the stack. `trips`: entries.
Value* stacked(RegionBuilder& r, Value* x, Value* start, int64_t trips = 3) {
  const auto body = [](RegionBuilder& in, const Values& a) {
    Value* away = placed(in, in.add(a[1], a[1]), MemoryKind::kPinnedHost);
    Value* entry = in.op(Kind::kBroadcastInDim, {away}, f32({1, 4}), DimsAttrs{{1}});
    return Values{in.mul(a[1], a[1]), in.update(a[2], entry, {a[0], in.number(test::i32({}), 0)})};
  };
  return r.times(trips, {x, start}, body)[1];
}

// A loop that reads the stack; `kind`: where to.
Value* summed(RegionBuilder& r, Value* x, Value* stack, MemoryKind kind) {
  const auto body = [kind](RegionBuilder& in, const Values& a) {
    Value* entry = in.slice(a[2], {a[0], in.number(test::i32({}), 0)}, {1, 4});
    Value* got = placed(in, in.op(Kind::kReshape, {entry}, f32({4})), kind);
    return Values{in.add(a[1], got), a[2]};
  };
  return r.times(3, {x, stack}, body)[0];
}

size_t count(const Module& m, Kind kind) {
  size_t n = 0;
  walk(m.main->body, [&](const Op& op) { n += op.kind == kind ? 1 : 0; });
  return n;
}

TEST(HostMemory, StacksOfLoopsAreKeptEntryByEntry) {
  GraphBuilder b;
  RegionBuilder r(b.region());
  Value* x = b.arg(f32({4}));
  Value* stack = stacked(r, x, r.number(f32({3, 4}), 0));
  Module& m = b.done({summed(r, x, stack, MemoryKind::kDevice)});
  keep_in_host_memory(m);
  verify(m);
  EXPECT_EQ(count(m, Kind::kDynamicUpdateSlice), 0u);
  EXPECT_EQ(count(m, Kind::kDynamicSlice), 0u);
  EXPECT_EQ(count(m, Kind::kSend), 3u);  // an entry, and the number of one in each loop
  EXPECT_EQ(count(m, Kind::kRecv), 1u);
  EXPECT_TRUE(m.notes.empty());
}

// Of entries that the loop does not write, too.
TEST(HostMemory, StacksStayWhereSomebodyReadsMore) {
  for (const int other : {0, 1, 2, 3}) {
    GraphBuilder b;
    RegionBuilder r(b.region());
    Value* x = b.arg(f32({4}));
    Value* stack =
        stacked(r, x, r.number(f32({3, 4}), other == 0 ? 1 : 0), /*trips=*/other == 3 ? 2 : 3);
    Values results = {
        summed(r, x, stack, other == 1 ? MemoryKind::kPinnedHost : MemoryKind::kDevice)};
    if (other == 2) {
      results.push_back(stack);
    }
    Module& m = b.done(results);
    keep_in_host_memory(m);
    verify(m);
    EXPECT_EQ(count(m, Kind::kSend), 0u) << other;
    EXPECT_EQ(count(m, Kind::kDynamicUpdateSlice), 1u) << other;
    EXPECT_FALSE(m.notes.empty()) << other;
  }
}

TEST(HostMemory, NotesWhatStaysInHbm) {
  GraphBuilder b;
  Value* there = placed(b, b.arg(f32({4})), MemoryKind::kPinnedHost);
  Module& m = b.done({b.op(Kind::kReverse, {there}, f32({4}), DimsAttrs{{0}})});
  keep_in_host_memory(m);
  EXPECT_EQ(kinds(m), "reverse return");
  ASSERT_EQ(m.notes.size(), 1u);
  EXPECT_EQ(
      m.notes[0],
      "host memory: f32[4] placed in pinned_host at test.py:1:1 stays in HBM while the program "
      "runs: the operation 'reverse' reads it");
}

}  // namespace
}  // namespace tpu::compiler
