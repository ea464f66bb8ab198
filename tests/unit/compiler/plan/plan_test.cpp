// Plans of loops and contractions: functions of a kernel and of what VMEM holds. What does not fit
// is an answer, and no plan that was given up shows in the program.
#include <gtest/gtest.h>

#include "emit/emit.hpp"
#include "plan/dot_plan.hpp"
#include "plan/loop_plan.hpp"
#include "planning.hpp"

namespace tpu::compiler::test {
namespace {

TEST(LoopPlan, LargeOperandsAreStreamedInTwoSlots) {
  GraphBuilder b;
  Value* x = b.arg(f32({1 << 20}));
  Planning p(b.done({b.op(Kind::kNegate, {x}, f32({1 << 20}))}), 64);
  const Kernel& k = p.program.kernels.front();
  const auto plan = plan_loop(k, p.memory, p.board, 0);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->streams.size(), 2u);
  EXPECT_TRUE(plan->whole.empty());
  for (const Stream& s : plan->streams) {
    EXPECT_EQ(s.slots.size(), 2u);
    EXPECT_LE(s.slot_bytes, plan->piece_limit);
  }
  int64_t elements = 0;
  for_each_tile(k, *plan,
                [&](const Dims&, const Dims& count, bool, bool) { elements += count[0]; });
  EXPECT_EQ(elements, 1 << 20);
  EXPECT_TRUE(p.memory.take_moves().empty());
}

TEST(LoopPlan, SmallOperandsAreLoadedWhole) {
  GraphBuilder b;
  Value* x = b.arg(f32({1024}));
  Planning p(b.done({b.op(Kind::kNegate, {x}, f32({1024}))}), 64);
  const auto plan = plan_loop(p.program.kernels.front(), p.memory, p.board, 5);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->whole.size(), 2u);
  const std::vector<Move> moves = p.memory.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].bytes, 4096);
  EXPECT_EQ(moves[0].op_id, 5u);
}

TEST(LoopPlan, TooLittleVmemIsAnAnswer) {
  GraphBuilder b;
  Value* x = b.arg(f32({1 << 20}));
  Planning p(b.done({b.op(Kind::kNegate, {x}, f32({1 << 20}))}), 64);
  ASSERT_TRUE(p.memory.take(63 * kKib));
  EXPECT_FALSE(plan_loop(p.program.kernels.front(), p.memory, p.board, 0));
  EXPECT_TRUE(p.memory.take_moves().empty());
  EXPECT_TRUE(p.memory.take(kKib)) << "the plan that was given up holds VMEM";
}

// Even and odd rows of one value share a run of memory only while a tile has most of it.
TEST(LoopPlan, AccessesOfWideRowsAreReadOnce) {
  constexpr int64_t kRows = 128, kColumns = 24576;
  GraphBuilder b;
  Value* x = b.arg(f32({kRows, kColumns}));
  const Type half = f32({kRows / 2, kColumns});
  Value* even = b.op(Kind::kSlice, {x}, half, SliceAttrs{{0, 0}, {kRows, kColumns}, {2, 1}});
  Value* odd = b.op(Kind::kSlice, {x}, half, SliceAttrs{{1, 0}, {kRows, kColumns}, {2, 1}});
  Planning p(b.done({b.op(Kind::kMultiply, {even, odd}, half)}), 8 * 1024);
  const Kernel& k = p.program.kernels.front();
  ASSERT_EQ(k.loop().nest.accesses.size(), 2u);
  const auto plan = plan_loop(k, p.memory, p.board, 0);
  ASSERT_TRUE(plan);
  int64_t loaded = 0;
  for_each_tile(k, *plan, [&](const Dims& start, const Dims& count, bool, bool) {
    for (const Stream& s : plan->streams) {
      loaded += s.output ? 0 : make_piece(s.view, start, count, false, s.reach).elements;
    }
  });
  EXPECT_GE(loaded, kRows * kColumns);
  EXPECT_LE(loaded, 2 * kRows * kColumns);
}

DotAttrs matmul_attrs() {
  DotAttrs a;
  a.lhs_contract = {1};
  a.rhs_contract = {0};
  return a;
}

TEST(DotPlan, OperandsWholeOrInBlocks) {
  GraphBuilder b;
  Value* x = b.arg(f32({512, 512}));
  Value* w = b.arg(f32({512, 128}));
  const Module& m = b.done({b.op(Kind::kDotGeneral, {x, w}, f32({512, 128}), matmul_attrs())});
  Planning large(m, 16 * 1024);
  const auto whole = plan_dot(large.program.kernels.front(), large.memory, large.board, 0);
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->limits.lhs_whole && whole->limits.rhs_whole && whole->limits.out_whole);
  EXPECT_EQ(large.memory.take_moves().size(), 2u);
}

// Their blocks pass through, on whichever side they are.
TEST(DotPlan, WeightsThatMeetAFewRowsAreNotBroughtInAsAWhole) {
  for (const bool weights_first : {false, true}) {
    GraphBuilder b;
    Value* few = b.arg(f32(weights_first ? Dims{1024, 8} : Dims{8, 1024}));
    Value* weights = b.arg(f32({1024, 1024}));
    const std::vector<Value*> operands =
        weights_first ? std::vector{weights, few} : std::vector{few, weights};
    const Type type = f32(weights_first ? Dims{1024, 8} : Dims{8, 1024});
    const Module& m = b.done({b.op(Kind::kDotGeneral, operands, type, matmul_attrs())});
    Planning p(m, 16 * 1024);
    const auto plan = plan_dot(p.program.kernels.front(), p.memory, p.board, 0);
    ASSERT_TRUE(plan);
    const TileLimits& limits = plan->limits;
    const bool weights_are_lhs = plan->w.c.lhs == weights;
    EXPECT_FALSE(weights_are_lhs ? limits.lhs_whole : limits.rhs_whole) << weights_first;
    EXPECT_TRUE(weights_are_lhs ? limits.rhs_whole : limits.lhs_whole) << weights_first;
    EXPECT_EQ(limits.stream_bytes, 4 * 1024 * kKib);
  }
}

TEST(DotPlan, TooLittleVmemIsAnAnswer) {
  GraphBuilder b;
  Value* x = b.arg(f32({512, 512}));
  Value* w = b.arg(f32({512, 128}));
  Planning p(b.done({b.op(Kind::kDotGeneral, {x, w}, f32({512, 128}), matmul_attrs())}), 64);
  const Kernel& k = p.program.kernels.front();
  {
    Reservation alone(p.memory);
    const auto blocks = plan_dot(k, p.memory, p.board, 0);
    ASSERT_TRUE(blocks);
    EXPECT_FALSE(blocks->limits.lhs_whole);
  }
  ASSERT_TRUE(p.memory.take(63 * kKib + 512));
  EXPECT_FALSE(plan_dot(k, p.memory, p.board, 0));
  EXPECT_TRUE(p.memory.take_moves().empty());
}

// Products of attention: scores of queries and keys, values by scores; 8 heads of 64 side by side.
Module& attention(GraphBuilder& b, bool scores) {
  const auto bf16 = [](Dims dims) { return Type{Elem::kBf16, std::move(dims)}; };
  const Dims tokens = {4, 256, 8, 64}, each = {4, 8, 256, 256};
  DotAttrs a;
  a.lhs_batch = scores ? Dims{0, 2} : Dims{0, 1};
  a.rhs_batch = {0, 2};
  a.lhs_contract = {3};
  a.rhs_contract = scores ? Dims{3} : Dims{1};
  Value* x = b.arg(bf16(scores ? tokens : each));
  Value* y = b.arg(bf16(tokens));
  if (scores) {
    return b.done({b.op(Kind::kDotGeneral, {x, y}, bf16(each), a)});
  }
  Value* made = b.op(Kind::kDotGeneral, {x, y}, bf16({4, 8, 256, 64}), a);
  return b.done({b.op(Kind::kTranspose, {made}, bf16(tokens), DimsAttrs{{0, 2, 1, 3}})});
}

TEST(DotPlan, HeadsSideBySidePassHbmTogether) {
  for (const bool scores : {true, false}) {
    GraphBuilder b;
    Planning p(attention(b, scores), 2 * 1024);
    for (Buffer* each : p.memory.all()) {
      ASSERT_GT(each->bytes, p.memory.operand_limit());
    }
    const auto plan = plan_dot(p.program.kernels.front(), p.memory, p.board, 0);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->group.n, 4);  // 512 bytes: a granule
    EXPECT_EQ(plan->group.out, !scores);
    EXPECT_EQ((plan->group.lhs ? 1 : 0) + (plan->group.rhs ? 1 : 0), scores ? 2 : 1);
  }
}

TEST(DotPlan, HeadsGoOneByOneWhereVmemIsSmall) {
  GraphBuilder b;
  Planning p(attention(b, true), 1024);
  const auto plan = plan_dot(p.program.kernels.front(), p.memory, p.board, 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->group.n, 1);
}

bool covers(const MemRange& a, const MemRange& b) {
  return a.space == b.space && a.slot == b.slot && a.pitch == 0 && a.lo <= b.lo && b.hi <= a.hi;
}

// Copies from HBM whose bytes in VMEM nobody reads before they are overwritten or the program ends.
int dead_loads(const Listing& l) {
  int dead = 0;
  for (size_t i = 0; i < l.items.size(); ++i) {
    const auto* command = std::get_if<Command>(&l.items[i]);
    const auto* dma = command == nullptr ? nullptr : std::get_if<spec::DmaCommand>(&command->body);
    if (dma == nullptr || static_cast<spec::Space>(dma->src.space) != spec::Space::kHbm) {
      continue;
    }
    const MemRange loaded = memory_ranges(l, *command).back();
    bool used = false, over = false;
    for (size_t j = i + 1; j < l.items.size() && !used && !over; ++j) {
      if (const auto* later = std::get_if<Command>(&l.items[j])) {
        for (const MemRange& r : memory_ranges(l, *later)) {
          used = used || (!r.write && ranges_overlap(r, loaded));
          over = over || (r.write && covers(r, loaded));
        }
      }
    }
    dead += used ? 0 : 1;
  }
  return dead;
}

// Three operands that are read again would stay in VMEM as a whole, but beside the slots of the
// large ones there is room for two.
TEST(Schedule, APlanThatWasGivenUpLoadsNothing) {
  GraphBuilder b;
  const Type wide = f32({64, 4096}), row = f32({4096});
  Value* sum = b.arg(wide);
  for (int i = 0; i < 4; ++i) {
    sum = b.op(Kind::kAdd, {sum, b.arg(wide)}, wide);
  }
  std::vector<Value*> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(b.arg(row));
    Value* spread = b.op(Kind::kBroadcastInDim, {rows.back()}, wide, DimsAttrs{{1}});
    sum = b.op(Kind::kAdd, {sum, spread}, wide);
  }
  Value* again = rows[0];
  for (int i = 1; i < 3; ++i) {
    again = b.op(Kind::kMultiply, {again, rows[static_cast<size_t>(i)]}, row);
  }
  const Module& m = b.done({sum, again});
  const spec::BoardParams board = spec::load_board("v3_8", {"core.vmem_kib=64"});
  KernelProgram kernels = make_kernels(m, board);
  EXPECT_EQ(dead_loads(emit_program(m, kernels, board, {0}).listing), 0);
}

}  // namespace
}  // namespace tpu::compiler::test
