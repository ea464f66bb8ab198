// Plans of kernels that move windows by a list, and of slices at computed places.
#include "plan/indexed/indexed_plan.hpp"

#include <gtest/gtest.h>

#include "plan/indexed/combine_plan.hpp"
#include "plan/indexed/dynamic_plan.hpp"
#include "planning.hpp"

namespace tpu::compiler::test {
namespace {

bool in_hbm(const spec::Addr& a) { return static_cast<spec::Space>(a.space) == spec::Space::kHbm; }

// 2,048 rows of 16 elements of a table of 65,536.
struct Rows {
  Rows() {
    Value* table = b.arg(f32({65536, 16}));
    Value* list = b.arg(i32({2048}));
    out = b.op(Kind::kIndexedRead, {table, list}, f32({2048, 1, 16}), IndexedAttrs{{1, 16}});
    b.done({out});
  }
  GraphBuilder b;
  Value* out = nullptr;
};

std::optional<IndexedPlan> indexed(Planning& p) {
  return plan_indexed(p.kernel(KernelClass::kIndexed), p.board, p.memory, 3);
}

TEST(IndexedPlan, AListInHbmComesPieceByPiece) {
  Rows g;
  Planning p(g.b.module(), 64);
  const auto plan = indexed(p);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(in_hbm(plan->table) && in_hbm(plan->dense) && in_hbm(plan->list));
  EXPECT_EQ(plan->records, 2048);
  EXPECT_EQ(plan->piece_records, 1024);
  EXPECT_GE(plan->slots[0], 0);
  EXPECT_EQ(std::abs(plan->slots[1] - plan->slots[0]), 1024 * 4);
  ASSERT_EQ(plan->dims.size(), 1u);
  EXPECT_EQ(plan->dims[0].n, 16);
  EXPECT_EQ(plan->span, 65536 * 16 * 4);
  p.memory.pins().clear();
  EXPECT_TRUE(p.memory.take(64 * kKib)) << "slots are still taken";
}

TEST(IndexedPlan, AListInVmemIsUsedThere) {
  Rows g;
  Planning p(g.b.module(), 64);
  Buffer& list = p.memory.at(p.kernel(KernelClass::kIndexed).reads[1]);
  ASSERT_TRUE(load(p.memory, list, 0));
  p.memory.take_moves();
  const auto plan = indexed(p);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->list.offset, list.vmem);
  EXPECT_EQ(plan->slots[0], -1);
}

TEST(IndexedPlan, TooLittleVmemIsAnAnswer) {
  Rows g;
  Planning p(g.b.module(), 64);
  ASSERT_TRUE(p.memory.take(59 * kKib));  // room for one slot
  expect_no_trace(p, [&] { return indexed(p); });
}

// Rows of a target replaced; `again`: the target is read afterwards.
struct Replaced {
  explicit Replaced(bool again) {
    target = b.arg(f32({64, 16}));
    Value* list = b.arg(i32({2048}));
    Value* updates = b.arg(f32({2048, 1, 16}));
    out = b.op(Kind::kIndexedWrite, {target, list, updates}, target->type, IndexedAttrs{{1, 16}});
    std::vector<Value*> results{out};
    if (again) {
      results.push_back(b.op(Kind::kAdd, {target, out}, target->type));
    }
    b.done(results);
  }
  GraphBuilder b;
  Value *target = nullptr, *out = nullptr;
};

TEST(IndexedPlan, ATargetThatNobodyReadsAgainIsWrittenInPlace) {
  Replaced g(false);
  Planning p(g.b.module(), 64);
  p.kernel(KernelClass::kIndexed);
  ASSERT_TRUE(load(p.memory, p.memory.at(g.target), 0));
  const int64_t place = p.memory.at(g.target).vmem;
  p.memory.take_moves();
  const auto plan = indexed(p);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->scatter);
  EXPECT_EQ(plan->table.offset, place);
  EXPECT_EQ(p.memory.at(g.out).vmem, place);
  EXPECT_LT(p.memory.at(g.target).vmem, 0);
  EXPECT_TRUE(p.memory.take_moves().empty());
}

TEST(IndexedPlan, ATargetThatIsReadAgainIsCopied) {
  Replaced g(true);
  Planning p(g.b.module(), 64);
  p.kernel(KernelClass::kIndexed);
  ASSERT_TRUE(load(p.memory, p.memory.at(g.target), 0));
  const int64_t place = p.memory.at(g.target).vmem;
  p.memory.take_moves();
  const auto plan = indexed(p);
  ASSERT_TRUE(plan);
  EXPECT_EQ(p.memory.at(g.target).vmem, place);
  const std::vector<Move> moves = p.memory.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].src.offset, place);
  EXPECT_EQ(moves[0].dst.offset, p.memory.at(g.out).vmem);
}

TEST(IndexedPlan, AnInPlaceWriteThatDoesNotFitGivesThePlaceBack) {
  Replaced g(false);
  Planning p(g.b.module(), 64);
  p.kernel(KernelClass::kIndexed);
  ASSERT_TRUE(load(p.memory, p.memory.at(g.target), 0));
  ASSERT_TRUE(p.memory.take(56 * kKib));
  expect_no_trace(p, [&] { return indexed(p); });
}

// Sums of windows of 16 elements that may meet.
struct Combined {
  explicit Combined(Elem elem = Elem::kF32) {
    const Type scalar{elem, {}};
    Value* target = b.arg({elem, {1024}});
    Value* list = b.arg(i32({2048}));
    Value* updates = b.arg({elem, {2048, 16}});
    out = b.op(Kind::kIndexedCombine, {target, list, updates}, target->type, IndexedAttrs{{16}});
    b.with_body(out, Kind::kAdd);
    b.done({out});
  }
  GraphBuilder b;
  Value* out = nullptr;
};

std::optional<CombinePlan> combined(Planning& p) {
  return plan_combine(p.kernel(KernelClass::kIndexed), p.board, p.memory, 3);
}

TEST(CombinePlan, TargetsAreWholeUpdatesComeInPieces) {
  Combined g;
  Planning p(g.b.module(), 64);
  const auto plan = combined(p);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->targets.size(), 1u);
  EXPECT_EQ(plan->targets[0].address, p.memory.at(g.out).vmem);
  EXPECT_EQ(plan->targets[0].bytes, 4 * kKib);
  EXPECT_EQ(p.memory.take_moves().size(), 1u) << "the target's contents";
  EXPECT_EQ(plan->piece_records, 4 * kKib / (16 * 4 + 1));
  EXPECT_GE(plan->updates[0].slot, 0);
  EXPECT_EQ(plan->body->results.size(), 1u);
  EXPECT_TRUE(p.memory.take(60 * kKib)) << "the slot is still taken";
}

TEST(CombinePlan, TooLittleVmemIsAnAnswer) {
  Combined g;
  Planning p(g.b.module(), 64);
  ASSERT_TRUE(p.memory.take(60 * kKib));  // the target alone fits
  expect_no_trace(p, [&] { return combined(p); });
}

// Nothing reads the updates later, but this kernel does: they make no room for the target.
TEST(CombinePlan, UpdatesInVmemStayThere) {
  Combined g;
  Planning p(g.b.module(), 160);
  Buffer& updates = p.memory.at(p.kernel(KernelClass::kIndexed).reads[2]);
  ASSERT_TRUE(load(p.memory, updates, 0));  // 128 KiB
  ASSERT_TRUE(p.memory.take(30 * kKib));
  EXPECT_FALSE(combined(p));
  EXPECT_GE(updates.vmem, 0);
}

TEST(CombinePlan, ElementsOf64BitsAreRefused) {
  Combined g(Elem::kI64);
  Planning p(g.b.module(), 64);
  EXPECT_THROW((void)combined(p), Error);
}

// A box of 4 x 8 of an array of 16 x 32, at a known row (clamped) and a column from a buffer.
TEST(DynamicPlan, KnownStartsAreInTheAddress) {
  GraphBuilder b;
  Value* x = b.arg(f32({16, 32}));
  Value* column = b.arg(i32({}));
  Value* out = b.op(Kind::kDynamicSlice, {x, b.constant(i32({}), 100), column}, f32({4, 8}),
                    DimsAttrs{{4, 8}});
  Planning p(b.done({out}), 64);
  const DynamicPlan plan = plan_dynamic_slice(p.kernel(KernelClass::kDynamicSlice), p.memory);
  EXPECT_EQ(plan.src.offset, home_of(p.memory.at(x)).offset + 12 * 32 * 4);
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].limit, 24);
  EXPECT_EQ(plan.starts[0].stride, 4);
  EXPECT_EQ(plan.starts[0].scalar, 1);
  ASSERT_EQ(plan.scalars.size(), 1u);
  EXPECT_EQ(plan.scalars[0].from.slot, home_of(p.memory.at(column)).slot);
  EXPECT_EQ(plan.window.hi - plan.window.lo, 16 * 32 * 4);
  EXPECT_EQ(plan.dst.offset, p.memory.at(out).vmem);
}

TEST(DynamicPlan, AnUpdateIsInPlaceIfNobodyReadsTheOperandAgain) {
  for (const bool again : {false, true}) {
    GraphBuilder b;
    Value* x = b.op(Kind::kNegate, {b.arg(f32({16, 32}))}, f32({16, 32}));
    Value* part = b.arg(f32({4, 32}));
    Value* row = b.arg(i32({}));
    Value* out = b.op(Kind::kDynamicUpdateSlice, {x, part, row, b.constant(i32({}), 0)}, x->type);
    std::vector<Value*> results{out};
    if (again) {
      results.push_back(b.op(Kind::kAdd, {x, out}, x->type));
    }
    Planning p(b.done(results), 64);
    const Kernel& k = p.kernel(KernelClass::kDynamicUpdate);
    ASSERT_TRUE(p.memory.place(p.memory.at(x)));
    const int64_t place = p.memory.at(x).vmem;
    const DynamicPlan plan = plan_dynamic_update(k, p.memory, 3);
    EXPECT_EQ(p.memory.take_moves().size(), again ? 1u : 0u);
    EXPECT_EQ(p.memory.at(x).vmem, again ? place : -1);
    EXPECT_EQ(plan.dst.offset, p.memory.at(out).vmem);
    EXPECT_EQ(plan.dst.offset == place, !again);
  }
}

}  // namespace
}  // namespace tpu::compiler::test
