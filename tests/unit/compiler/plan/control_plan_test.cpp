// Steps of loops: what does not fit in a region is answered by planning the region again. And what
// a cut means for results that lie where an argument lies.
#include <gtest/gtest.h>

#include <climits>

#include "../control_builder.hpp"
#include "board/board_loader.hpp"
#include "kernel/kernel_passes.hpp"
#include "plan/in_place.hpp"
#include "plan/plan.hpp"

namespace tpu::compiler::test {
namespace {

// The planning of a graph on a board with 16 KiB of VMEM: loops may lock 4 KiB of it.
struct Program {
  explicit Program(const Module& m)
      : board(spec::load_board("v3_8", {"core.vmem_kib=16"})),
        kernels(make_kernels(m, board)),
        ctx(m, kernels, board, board.hbm.gib_per_core << 30) {}

  const Kernel& enter(KernelClass kind) {
    const auto it = std::find_if(kernels.kernels.begin(), kernels.kernels.end(),
                                 [&](const Kernel& k) { return k.kind == kind; });
    enter_kernel(ctx, *it);
    return *it;
  }

  spec::BoardParams board;
  KernelProgram kernels;
  PlanContext ctx;
};

// A loop that carries 4 KiB and adds `large` arrays of its size and `small` rows of 1 KiB to it.
Values adding_loop(GraphBuilder& b, int large, int small) {
  const Type wide = f32({4, 256}), row = f32({256});
  Values arrays, rows;
  Value* x = b.arg(wide);
  for (int i = 0; i < large; ++i) {
    arrays.push_back(b.arg(wide));
  }
  for (int i = 0; i < small; ++i) {
    rows.push_back(b.arg(row));
  }
  RegionBuilder r(b.region());
  return r.times(3, {x}, [&](RegionBuilder& in, const Values& a) {
    Value* sum = a[1];
    for (Value* v : arrays) {
      sum = in.add(sum, v);
    }
    for (Value* v : rows) {
      sum = in.add(sum, in.op(Kind::kBroadcastInDim, {v}, wide, DimsAttrs{{1}}));
    }
    return Values{sum};
  });
}

const Value* carried(const Kernel& loop) { return loop.ops[0]->regions[1]->args[1].get(); }

TEST(WhilePlan, CarriedValuesStayInVmem) {
  GraphBuilder b;
  Program p(b.done(adding_loop(b, 2, 0)));
  const Kernel& k = p.enter(KernelClass::kWhile);
  const auto step = plan_kernel(p.ctx, k);
  ASSERT_TRUE(step);
  const auto& plan = std::get<WhilePlan>(step->plan);
  ASSERT_EQ(plan.body.schedule.steps.size(), 1u);
  EXPECT_GE(plan.body.schedule.steps[0].places.at(carried(k)).vmem, 0);
  EXPECT_TRUE(plan.body.yield.empty()) << "it is made where it was";
  EXPECT_FALSE(p.ctx.memory.locks().any());
}

// What the loop alone reads later is changed where it is.
TEST(WhilePlan, AnInitialValueInVmemIsCarriedInItsPlace) {
  GraphBuilder b;
  Program p(b.done(adding_loop(b, 2, 0)));
  const Kernel& k = p.enter(KernelClass::kWhile);
  Buffer& initial = p.ctx.memory.at(k.control().carried[1]);
  ASSERT_TRUE(load(p.ctx.memory, initial, 0));
  p.ctx.memory.take_moves();
  const int64_t place = initial.vmem;
  const auto step = plan_kernel(p.ctx, k);
  ASSERT_TRUE(step);
  const auto& plan = std::get<WhilePlan>(step->plan);
  EXPECT_EQ(plan.body.schedule.steps.at(0).places.at(carried(k)).vmem, place);
}

// 8 arrays in two slots of 512 bytes each, 5 rows and the carried value are 17 KiB; with the
// carried value and its successor in slots, too, they are 15.
TEST(WhilePlan, WhatDoesNotFitIsPlannedWithLessLocked) {
  GraphBuilder b;
  Program p(b.done(adding_loop(b, 8, 5)));
  const Kernel& k = p.enter(KernelClass::kWhile);
  const int64_t limit = p.ctx.memory.locks().limit;
  const auto step = plan_kernel(p.ctx, k);
  ASSERT_TRUE(step);
  const auto& plan = std::get<WhilePlan>(step->plan);
  ASSERT_EQ(plan.body.schedule.steps.size(), 1u) << "nothing was cut";
  EXPECT_LT(plan.body.schedule.steps[0].places.at(carried(k)).vmem, 0);
  EXPECT_EQ(p.ctx.ops.list().size(), 2u) << "one entry for a kernel, however often it is planned";
  EXPECT_EQ(p.ctx.memory.locks().limit, limit) << "the next loop may lock as much";
  EXPECT_FALSE(p.ctx.memory.locks().any());
}

TEST(WhilePlan, WhatDoesNotFitUnlockedEitherIsCut) {
  GraphBuilder b;
  Program p(b.done(adding_loop(b, 14, 0)));
  const Kernel& k = p.enter(KernelClass::kWhile);
  const std::list<Kernel>& body = k.control().regions[1]->kernels;
  const size_t before = body.size();
  const auto step = plan_kernel(p.ctx, k);
  ASSERT_TRUE(step);
  EXPECT_EQ(body.size(), before + 1);
  EXPECT_EQ(std::get<WhilePlan>(step->plan).body.schedule.steps.size(), before) << "less the yield";
  EXPECT_EQ(p.ctx.ops.list().size(), before + 1);
}

// Each iteration writes row `counter` of an array of four rows that starts as zeros.
KernelProgram stacking_kernels(GraphBuilder& b, int trips) {
  Value* row = b.arg(f32({1, 256}));
  RegionBuilder r(b.region());
  Value* zeros = r.spread(r.number(f32({}), 0), {4, 256});
  const Values stacked = r.times(trips, {zeros}, [&](RegionBuilder& in, const Values& a) {
    return Values{in.update(a[1], row, {a[0], in.number(i32({}), 0)})};
  });
  return make_kernels(b.done(stacked), spec::load_board("v3_8"));
}

TEST(WhileKernel, WhatIsOverwrittenNeedsNoInitialValue) {
  GraphBuilder b;
  const KernelProgram kernels = stacking_kernels(b, 4);
  ASSERT_EQ(kernels.kernels.front().kind, KernelClass::kWhile) << print(kernels);
  EXPECT_TRUE(kernels.kernels.front().control().overwritten.at(1));
}

TEST(WhileKernel, WhatIsOverwrittenInPartKeepsItsInitialValue) {
  GraphBuilder b;
  const KernelProgram kernels = stacking_kernels(b, 3);
  EXPECT_EQ(kernels.kernels.front().kind, KernelClass::kLoop) << print(kernels);
}

// Both results read the donated argument: in one kernel the first may be written over it.
TEST(CutKernel, ResultsLoseHomesThatArgumentsNeedAgain) {
  GraphBuilder b;
  const Type type = f32({1024});
  Value *x = b.arg(type), *y = b.arg(type);
  b.module().main->args[0].alias_result = 0;
  Value* sum = b.op(Kind::kAdd, {x, y}, type);
  Value* product = b.op(Kind::kMultiply, {x, sum}, type);
  Program p(b.done({sum, product}));
  ASSERT_EQ(p.ctx.result_home.at(0), sum);
  ASSERT_EQ(p.ctx.result_home.at(1), product);
  ASSERT_TRUE(cut_kernel(p.ctx, p.enter(KernelClass::kLoop)));
  EXPECT_EQ(p.ctx.result_home.at(0), nullptr);
  EXPECT_LT(p.ctx.memory.at(sum).slot, 0);
  EXPECT_FALSE(p.ctx.memory.at(sum).must_store);
  EXPECT_EQ(p.ctx.result_home.at(1), product) << "nobody reads what it replaces";
}

// A cut of a later kernel, which reads what they replace, takes no results from where they are.
TEST(CutKernel, ResultsThatAreMadeKeepTheirHomes) {
  GraphBuilder b;
  const Type type = f32({64, 64});
  Value *x = b.arg(type), *y = b.arg(type);
  b.module().main->args[0].alias_result = 0;
  b.module().main->args[1].alias_result = 1;
  Value* sum = b.op(Kind::kAdd, {x, y}, type);
  Value* difference = b.op(Kind::kSubtract, {x, y}, type);
  Value* total = b.reduce(difference, b.constant(f32({}), 0), {0}, f32({64}), Kind::kAdd);
  Value* wide = b.op(Kind::kBroadcastInDim, {total}, type, DimsAttrs{{1}});
  Value* late = b.op(Kind::kMultiply, {b.op(Kind::kMultiply, {x, wide}, type), y}, type);
  Program p(b.done({sum, difference, late}));
  for (const int order : {0, INT_MAX}) {  // in front of all, behind all
    std::vector<const Value*> homes = {sum, difference, nullptr};
    revise_results(p.kernels, p.ctx.slots, order, p.ctx.memory, homes);
    EXPECT_EQ(homes[0], order == 0 ? nullptr : sum);
    EXPECT_EQ(homes[1], order == 0 ? nullptr : difference);
  }
}

}  // namespace
}  // namespace tpu::compiler::test
