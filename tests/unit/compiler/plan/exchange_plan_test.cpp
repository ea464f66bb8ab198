// Plans of collectives: where pieces lie on their way; what does not fit is an answer.
#include <gtest/gtest.h>

#include "plan/exchange/direct_plan.hpp"
#include "plan/exchange/packed_plan.hpp"
#include "plan/exchange/stream_plan.hpp"
#include "planning.hpp"

namespace tpu::compiler::test {
namespace {

constexpr int64_t kPiece = 64 * kKib;

CollectiveAttrs all_cores() {
  CollectiveAttrs a;
  a.groups = {{0, 1, 2, 3, 4, 5, 6, 7}};
  return a;
}

Value* sum_of(GraphBuilder& b, Value* x) {
  return b.with_body(b.op(Kind::kAllReduce, {x}, x->type, all_cores()), Kind::kAdd);
}

// Sums of arrays of so many KiB.
struct Sums {
  explicit Sums(const std::vector<int64_t>& kib) {
    std::vector<Value*> results;
    for (const int64_t n : kib) {
      args.push_back(b.arg(f32({n * 256})));
      results.push_back(sum_of(b, args.back()));
    }
    sums = results;
    b.done(results);
  }
  GraphBuilder b{8};
  std::vector<Value*> args, sums;
};

std::optional<std::vector<PackedPlan>> packed(Planning& p) {
  const Kernel& k = p.kernel(KernelClass::kAllReduce);
  return plan_packed(k, exchange_of(*k.ops[0], 8), p.program.piece, p.board, p.memory, 3);
}

TEST(PackedPlan, SmallValuesShareOneAreaWithALandingForEachStage) {
  Sums s({1, 2});
  Planning p(s.b.module(), 64);
  const auto plans = packed(p);
  ASSERT_TRUE(plans);
  ASSERT_EQ(plans->size(), 1u);
  const PackedPlan& plan = plans->front();
  EXPECT_FALSE(plan.halves);
  EXPECT_EQ(plan.used, 3 * kKib);
  EXPECT_EQ(plan.bytes, 4 * kKib);
  ASSERT_EQ(plan.landing.size(), 3u);
  ASSERT_EQ(plan.before.size(), 2u);
  EXPECT_EQ(plan.before[0].dst.offset, plan.area);
  EXPECT_EQ(plan.before[1].dst.offset, plan.area + kKib);
  EXPECT_EQ(plan.before[1].bytes, 2 * kKib);
  EXPECT_EQ(plan.before[1].op_id, 3u);
  // The results stay where the last sum is made, and share its memory.
  EXPECT_EQ(p.memory.at(s.sums[0]).vmem, plan.landing.back());
  EXPECT_EQ(p.memory.at(s.sums[1]).vmem, plan.landing.back() + kKib);
  EXPECT_TRUE(p.memory.shared().contains(p.memory.at(s.sums[0]).vmem));
  EXPECT_TRUE(plan.after.empty());
  EXPECT_TRUE(p.memory.take_moves().empty());
  EXPECT_TRUE(p.memory.take(56 * kKib)) << "areas of the exchange are still taken";
}

TEST(PackedPlan, LargerAreasAreHalvedInPieces) {
  Sums s({100, 40, 60});
  Planning p(s.b.module(), 2048, 128 * kKib);
  const auto plans = packed(p);
  ASSERT_TRUE(plans);
  ASSERT_EQ(plans->size(), 1u);
  const HalvingPlan& h = plans->front().halving;
  EXPECT_TRUE(plans->front().halves);
  ASSERT_EQ(h.pieces.size(), 2u);
  EXPECT_EQ(h.bytes, 100 * kKib);
  EXPECT_EQ(h.buckets[1], h.buckets[0] + h.bytes);
  for (size_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(h.landing[stage].size(), 2u);
  }
  EXPECT_EQ(p.memory.at(s.sums[1]).vmem, plans->front().area + 100 * kKib);
}

TEST(PackedPlan, WhatIsLargerThanAQuarterOfVmemGoesAreaByArea) {
  Sums s({30, 30});
  Planning p(s.b.module(), 128);
  const auto plans = packed(p);
  ASSERT_TRUE(plans);
  EXPECT_EQ(plans->size(), 2u);
  EXPECT_EQ((*plans)[0].used, 30 * kKib);
}

TEST(PackedPlan, TooLittleVmemIsAnAnswer) {
  Sums s({1, 2});
  Planning p(s.b.module(), 64);
  ASSERT_TRUE(load(p.memory, p.memory.at(s.args[0]), 0));
  ASSERT_TRUE(p.memory.take(52 * kKib));  // area and one landing fit; the operand would have to go
  expect_no_trace(p, [&] { return packed(p); });
}

TEST(PackedPlan, TheSecondAreaThatDoesNotFitTakesTheFirstBack) {
  Sums s({30, 30});
  Planning p(s.b.module(), 128);
  p.memory.at(s.sums[0]).locked = true;  // what the first area makes cannot leave
  ASSERT_TRUE(p.memory.take(4 * kKib));
  expect_no_trace(p, [&] { return packed(p); });
}

std::optional<StreamPlan> streamed(Planning& p, bool overlaps = true) {
  const Kernel& k = p.kernel(KernelClass::kAllReduce);
  StreamSite site;
  site.exchange = exchange_of(*k.ops[0], 8);
  site.piece_bytes = p.program.piece;
  site.overlaps = overlaps;
  return plan_streamed(k, site, p.memory, 3);
}

TEST(StreamPlan, PiecesGoFromHomeToHomeThroughRings) {
  Sums s({16 * 64});
  Planning p(s.b.module(), 2048, kPiece);
  const std::string before = p.state();
  const auto plan = streamed(p);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->pieces.size(), 16u);
  const Buffer &in = p.memory.at(s.args[0]), &out = p.memory.at(s.sums[0]);
  EXPECT_EQ(plan->pieces[3].src.offset, home_of(in).offset + 3 * kPiece);
  EXPECT_EQ(plan->pieces[3].dst.offset, home_of(out).offset + 3 * kPiece);
  EXPECT_EQ(plan->lag, 2) << "nothing runs beside it";
  EXPECT_EQ(plan->buckets.size(), 14u);
  EXPECT_EQ(plan->landing[2].size(), 4u);
  EXPECT_EQ(plan->bucket(14), plan->bucket(0));
  EXPECT_TRUE(p.memory.pins().held.contains(&in) && p.memory.pins().held.contains(&out));
  EXPECT_FALSE(out.in_hbm);
  end_streamed(p.memory, *plan);
  EXPECT_TRUE(out.in_hbm);
  EXPECT_TRUE(p.memory.pins().held.empty());
  EXPECT_TRUE(p.memory.take(2048 * kKib)) << "VMEM of the rings is still taken";
}

TEST(StreamPlan, WithLessVmemPiecesFollowCloser) {
  Sums s({16 * 64});
  Planning p(s.b.module(), 1024, kPiece);
  const auto plan = streamed(p);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->lag, 1);
  EXPECT_EQ(plan->buckets.size(), 8u);
}

TEST(StreamPlan, InARegionItHasEndedWhenItIsPlanned) {
  Sums s({16 * 64});
  Planning p(s.b.module(), 1024, kPiece);
  const auto plan = streamed(p, false);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->buckets.size(), 8u);
  EXPECT_TRUE(p.memory.pins().held.empty());
  EXPECT_TRUE(p.memory.at(s.sums[0]).in_hbm);
  EXPECT_TRUE(p.memory.take(1024 * kKib));
}

TEST(StreamPlan, OperandsMoveWhileItIsInFlight) {
  Sums s({2 * 64});
  Planning p(s.b.module(), 2048, kPiece);
  auto plan = streamed(p);
  ASSERT_TRUE(plan);
  Buffer& in = p.memory.at(s.args[0]);
  ASSERT_TRUE(load(p.memory, in, 0));
  find_operand(p.memory, *plan, 1);
  EXPECT_EQ(plan->pieces[1].src.offset, in.vmem + kPiece);
  EXPECT_EQ(static_cast<spec::Space>(plan->pieces[1].src.space), spec::Space::kVmem);
}

TEST(StreamPlan, TooLittleVmemIsAnAnswer) {
  Sums s({16 * 64});
  Planning p(s.b.module(), 512, kPiece);
  expect_no_trace(p, [&] { return streamed(p); });
}

TEST(StreamPlan, ReadersOfTheSumFollow) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({16 * kKib}));
  Value* y = b.arg(f32({100}));
  Value* sum = sum_of(b, x);
  Planning p(b.done({b.op(Kind::kNegate, {sum}, x->type), b.op(Kind::kNegate, {y}, y->type)}), 2048,
             kPiece);
  const Kernel& k = p.kernel(KernelClass::kAllReduce);
  ASSERT_TRUE(streamed(p));
  int readers = 0, others = 0;
  for (const Kernel& other : p.program.kernels) {
    if (other.kind == KernelClass::kLoop) {
      const bool reads = other.reads[0] == sum;
      EXPECT_EQ(must_follow(other, k, p.memory), reads);
      ++(reads ? readers : others);
    }
  }
  EXPECT_EQ(readers, 1);
  EXPECT_EQ(others, 1);
}

// g summed; state' = state + sum, stays sharded; weight' = weight - state' * rate, is gathered. As
// the pass on weight updates leaves it: the loop kernel hangs on the exchange.
struct Updated {
  Updated() {
    const Type type = f32({4 * 16 * kKib});
    state = b.arg(type);
    weight = b.arg(type);
    rate = b.arg(f32({}));
    sum = sum_of(b, b.arg(type));
    new_state = b.op(Kind::kAdd, {state, sum}, type);
    Value* spread = b.op(Kind::kBroadcastInDim, {rate}, type, DimsAttrs{});
    Value* step = b.op(Kind::kMultiply, {new_state, spread}, type);
    new_weight = b.op(Kind::kSubtract, {weight, step}, type);
    b.done({new_state, new_weight});
  }

  void attach(Planning& p) const {
    const Kernel loop = p.kernel(KernelClass::kLoop);
    auto& kernels = p.program.kernels;
    kernels.remove_if([](const Kernel& k) { return k.kind == KernelClass::kLoop; });
    Kernel& k = kernels.front();
    Update u;
    u.sum = sum;
    u.kernels = {{loop.ops, loop.loop().nest, loop.writes}};
    u.sharded = {new_state};
    u.gathered = {new_weight};
    k.as<ExchangePart>().updates = {u};
    k.reads.insert(k.reads.end(), {state, weight, rate});
    k.writes.insert(k.writes.end(), {new_state, new_weight});
    p.memory.find_reads(p.program, {});
  }

  GraphBuilder b{8};
  Value *state = nullptr, *weight = nullptr, *rate = nullptr, *sum = nullptr, *new_state = nullptr,
        *new_weight = nullptr;
};

TEST(StreamPlan, AnUpdateHasSlotsForItsOperandsAndAreasForWhatIsGathered) {
  Updated g;
  Planning p(g.b.module(), 2048, kPiece);
  g.attach(p);
  const auto plan = streamed(p);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->updates.size(), 1u);
  const UpdatePlan& u = plan->updates[0];
  ASSERT_EQ(u.operands.size(), 3u);  // state and weight come in, state' goes home
  for (const UpdateOperand& o : u.operands) {
    EXPECT_EQ(o.input, o.value != g.new_state);
    EXPECT_EQ(o.home.slot, home_of(p.memory.at(o.value)).slot);
    EXPECT_EQ(o.root, p.memory.at(o.value).slot);
  }
  ASSERT_EQ(u.gathered.size(), 1u);
  EXPECT_EQ(u.gathered[0].offset, home_of(p.memory.at(g.new_weight)).offset);
  ASSERT_EQ(plan->pieces.size(), 4u);
  EXPECT_EQ(plan->pieces[2].element, 2 * 16 * kKib);
  EXPECT_EQ(plan->update_of(2), &u);
  EXPECT_EQ(plan->ways_back(2), 1u);
  ASSERT_EQ(plan->back.size(), 1u);
  EXPECT_EQ(plan->slots.size(), 3u);
  EXPECT_EQ(plan->slots[0].size(), 3u);
  EXPECT_TRUE(plan->scalars.contains(g.rate));
  EXPECT_TRUE(p.memory.pins().held.contains(&p.memory.at(g.weight)));
  EXPECT_LT(p.memory.at(g.sum).slot, 0) << "the sum itself goes nowhere";
  // All areas are apart.
  std::set<int64_t> areas(plan->memory.begin(), plan->memory.end());
  EXPECT_EQ(areas.size(), plan->memory.size());
}

std::optional<std::vector<DirectPlan>> direct(Planning& p, int64_t cores) {
  return plan_direct(p.kernel(KernelClass::kExchange), cores, p.board, p.memory, 3);
}

TEST(DirectPlan, StepsOfAGatherPairAllCores) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({4, 2}));
  CollectiveAttrs a = all_cores();
  a.dim = 1;
  Planning p(b.done({b.op(Kind::kAllGather, {x}, f32({4, 16}), a)}), 64);
  const auto plans = direct(p, 8);
  ASSERT_TRUE(plans);
  const auto& steps = std::get<GroupSteps>(plans->front().steps);
  EXPECT_EQ(steps.src_step, 0);
  EXPECT_EQ(steps.dst_step, 2 * 4);
  ASSERT_EQ(steps.dims.size(), 2u);
  EXPECT_EQ(steps.dims[0].src, 2 * 4);
  EXPECT_EQ(steps.dims[0].dst, 16 * 4);
  EXPECT_EQ(steps.receivers[0], (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(steps.receivers[3], (std::vector<int64_t>{3, 2, 1, 0, 7, 6, 5, 4}));
  EXPECT_EQ(plans->front().writes.hi - plans->front().writes.lo, 4 * 16 * 4);
}

TEST(DirectPlan, GroupsOfAnotherSizeThanAPowerOfTwoSendInARing) {
  GraphBuilder b(6);
  Value* x = b.arg(f32({6}));
  CollectiveAttrs a;
  a.groups = {{0, 2, 4}, {5, 3, 1}};
  a.split_count = 3;
  Planning p(b.done({b.op(Kind::kAllToAll, {x}, f32({6}), a)}), 64);
  const auto plans = direct(p, 6);
  ASSERT_TRUE(plans);
  const auto& steps = std::get<GroupSteps>(plans->front().steps);
  EXPECT_EQ(steps.src_step, 2 * 4);
  EXPECT_EQ(steps.position, (std::vector<int64_t>{0, 2, 1, 1, 2, 0}));
  EXPECT_EQ(steps.receivers[1], (std::vector<int64_t>{2, 5, 4, 1, 0, 3}));
}

// A permutation of 4 cores in which core 0 alone sends, to core 1.
struct OnePair {
  OnePair() {
    PermuteAttrs a;
    a.pairs = {{0, 1}};
    Value* x = b.arg(f32({64 * 1024}));
    b.done({b.op(Kind::kCollectivePermute, {x}, x->type, a)});
  }
  GraphBuilder b{4};
};

TEST(DirectPlan, CoresThatSendNothingSendZerosThroughVmem) {
  OnePair g;
  Planning p(g.b.module(), 256);
  const auto plans = direct(p, 4);
  ASSERT_TRUE(plans);
  const auto& steps = std::get<PermuteSteps>(plans->front().steps);
  EXPECT_TRUE(steps.partial);
  EXPECT_EQ(steps.receiver, (std::vector<int64_t>{1, 0, 2, 3}));
  EXPECT_EQ(steps.sends, (std::vector<int64_t>{1, 0, 0, 0}));
  EXPECT_EQ(steps.piece_bytes, 32 * kKib);
  EXPECT_EQ(std::set<int64_t>({steps.zero, steps.staged[0], steps.staged[1]}).size(), 3u);
  EXPECT_TRUE(p.memory.take(256 * kKib)) << "staging areas are still taken";
}

TEST(DirectPlan, TooLittleVmemIsAnAnswer) {
  OnePair g;
  Planning p(g.b.module(), 256);
  ASSERT_TRUE(p.memory.take(180 * kKib));
  expect_no_trace(p, [&] { return direct(p, 4); });
}

}  // namespace
}  // namespace tpu::compiler::test
