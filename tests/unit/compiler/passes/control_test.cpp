// Passes on while, if and case: rules of the canonical form, trip counts, regions left in order.
#include "ir/control.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "control_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "passes/simplify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i32;
using test::Values;
using Builder = test::RegionBuilder;

Tensor tensor_of(const Type& type, int seed) {
  Tensor t = make_tensor(type);
  for (int64_t i = 0; i < type.count(); ++i) {
    if (type.elem == Elem::kF32) {
      const float f = static_cast<float>((i + seed) % 7) - 2.5f;
      std::memcpy(t.data.data() + 4 * i, &f, 4);
    } else {
      const auto v = static_cast<int32_t>((i + seed) % 7);
      std::memcpy(t.data.data() + 4 * i, &v, 4);
    }
  }
  return t;
}

// Simplifies; the results must keep their bits. Kinds of the ops that are left in main.
std::string simplified(Module& m) {
  std::vector<Tensor> args;
  for (const auto& a : m.main->body.args) {
    args.push_back(tensor_of(a->type, static_cast<int>(args.size())));
  }
  const auto before = interpret(m, {args});
  simplify(m);
  m.number_ops();
  verify(m);
  const auto after = interpret(m, {args});
  for (size_t i = 0; i < before[0].size(); ++i) {
    EXPECT_EQ(before[0][i].data, after[0][i].data) << "result " << i;
  }
  return test::kinds(m);
}

const Op* find(const Module& m, Kind kind) {
  const Op* found = nullptr;
  walk(m.main->body, [&](const Op& op) { found = op.kind == kind ? &op : found; });
  return found;
}

TEST(ControlPasses, CarriedValuesThatNeverChangeOrThatNobodyNeedsGo) {
  GraphBuilder b;
  Value *x = b.arg(f32({4})), *w = b.arg(f32({4}));
  Builder r(b.region());
  // Carried: x, w (never changes), a value that only feeds itself.
  const Values out = r.times(3, {x, w, x}, [](Builder& in, const Values& a) {
    return Values{in.add(a[1], a[2]), a[2], in.mul(a[3], a[3])};
  });
  simplified(b.done({out[0], out[1]}));
  const Op* loop = find(b.module(), Kind::kWhile);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(loop->operands.size(), 2u);  // counter and sum
  EXPECT_EQ(loop->regions[1]->terminator()->operands.size(), 2u);
}

TEST(ControlPasses, TheLastValueOfACounterIsAConstant) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Builder r(b.region());
  const Values inits{r.number(i32({}), 2), x};
  const Values out = r.loop(
      inits,
      [](Builder& in, const Values& a) {
        return Values{in.compare(CompareDirection::kLe, a[0], in.number(i32({}), 9))};
      },
      [](Builder& in, const Values& a) {
        return Values{in.add(a[0], in.number(i32({}), 3)), in.add(a[1], a[1])};
      });
  simplified(b.done({out[0], out[1]}));
  const Op* ret = b.module().main->body.terminator();
  ASSERT_EQ(ret->operands[0]->def->kind, Kind::kConstant);
  EXPECT_EQ(ret->operands[0]->def->as<ConstantAttrs>().value.as_int(0), 11);
}

TEST(ControlPasses, LoopsThatNeverRunAndKnownBranchesGo) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Builder r(b.region());
  const Values never =
      r.times(0, {x}, [](Builder& in, const Values& a) { return Values{in.add(a[1], a[1])}; });
  std::vector<Builder::Body> arms;
  for (int i = 0; i < 3; ++i) {
    arms.push_back([&, i](Builder& in, const Values&) {
      return Values{in.mul(never[0], in.number(f32({4}), i + 2))};
    });
  }
  const Values out = r.choose(Kind::kCase, r.number(i32({}), 7), {f32({4})}, arms);
  EXPECT_EQ(simplified(b.done(out)), "constant multiply return");
}

TEST(ControlPasses, ResultsThatAllBranchesShareComeFromOutside) {
  GraphBuilder b;
  Value *x = b.arg(f32({4})), *k = b.arg(i32({}));
  Builder r(b.region());
  Value* p = r.compare(CompareDirection::kGt, k, r.number(i32({}), 0));
  const Values out = r.choose(Kind::kIf, p, {f32({4}), f32({4}), f32({4})},
                              {[&](Builder& in, const Values&) {
                                 return Values{x, in.add(x, x), in.mul(x, x)};
                               },
                               [&](Builder& in, const Values&) {
                                 return Values{x, in.mul(x, x), in.add(x, x)};
                               }});
  simplified(b.done({out[0], out[1]}));
  const Op* branch = find(b.module(), Kind::kIf);
  ASSERT_NE(branch, nullptr);
  EXPECT_EQ(branch->results.size(), 1u);
  EXPECT_EQ(b.module().main->body.terminator()->operands[0], x);
}

// An op in a branch stays there; one that stands in front of it too is taken from there.
TEST(ControlPasses, NothingLeavesABranch) {
  GraphBuilder b;
  Value *x = b.arg(f32({4})), *k = b.arg(i32({}));
  Builder r(b.region());
  Value* outside = r.add(x, x);
  Value* p = r.compare(CompareDirection::kGt, k, r.number(i32({}), 0));
  const Values out =
      r.choose(Kind::kIf, p, {f32({4})},
               {[&](Builder& in, const Values&) { return Values{in.mul(in.add(x, x), x)}; },
                [&](Builder& in, const Values&) { return Values{in.mul(x, x)}; }});
  Value* after = r.mul(x, x);  // not the one of the branch
  simplified(b.done({out[0], outside, after}));
  const Op* branch = find(b.module(), Kind::kIf);
  ASSERT_NE(branch, nullptr);
  EXPECT_EQ(branch->regions[0]->ops.size(), 2u);  // multiply, return
  EXPECT_EQ(branch->regions[1]->ops.size(), 2u);
}

// What a counter's range decides is decided; the loop's own condition stays.
TEST(ControlPasses, ComparisonsOfCountersFold) {
  GraphBuilder b;
  Value* x = b.arg(f32({8}));
  Builder r(b.region());
  const Values out = r.times(8, {x}, [](Builder& in, const Values& a) {
    Value* i = in.op(Kind::kSubtract, {in.number(i32({}), 7), a[0]}, i32({}));
    Value* negative = in.compare(CompareDirection::kLt, i, in.number(i32({}), 0));
    Value* wrapped = in.add(i, in.number(i32({}), 8));
    Value* at = in.op(Kind::kSelect, {negative, wrapped, i}, i32({}));
    return Values{in.update(a[1], in.slice(a[1], {at}, {1}), {a[0]})};
  });
  simplified(b.done(out));
  const Op* loop = find(b.module(), Kind::kWhile);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(find(b.module(), Kind::kSelect), nullptr);
  EXPECT_TRUE(counted_loop(*loop).has_value());
}

TEST(ControlPasses, ASecondCounterIsTheFirst) {
  GraphBuilder b;
  Value* x = b.arg(f32({8}));
  Builder r(b.region());
  Value* start = r.number(i32({}), 0);
  const Values out = r.times(8, {start, x}, [](Builder& in, const Values& a) {
    return Values{in.add(a[1], in.number(i32({}), 1)),
                  in.update(a[2], in.slice(a[2], {a[1]}, {1}), {a[0]})};
  });
  simplified(b.done(out));
  const Op* loop = find(b.module(), Kind::kWhile);
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(loop->operands.size(), 2u) << print(b.module());
  EXPECT_EQ(b.module().main->body.terminator()->operands[0]->def->kind, Kind::kConstant);
}

struct Trips {
  CompareDirection direction;
  int64_t first, step, limit, trips;  // -1: not counted
};

TEST(CountedLoop, TripsOfAllDirections) {
  using D = CompareDirection;
  for (const Trips& t : std::vector<Trips>{{D::kLt, 0, 1, 5, 5},
                                           {D::kLt, 0, 2, 5, 3},
                                           {D::kLe, 0, 2, 4, 3},
                                           {D::kLt, 5, 1, 5, 0},
                                           {D::kLt, 7, -1, 5, 0},
                                           {D::kLt, 3, -1, 5, -1},
                                           {D::kGt, 9, -2, 0, 5},
                                           {D::kGe, 9, -3, 0, 4},
                                           {D::kGt, 0, 1, 9, 0},
                                           {D::kNe, 0, 3, 9, 3},
                                           {D::kNe, 0, 3, 10, -1},
                                           {D::kNe, 9, -3, 0, 3},
                                           {D::kEq, 0, 1, 0, -1},
                                           {D::kLt, 0, 0, 5, -1},
                                           {D::kLt, 2147483640, 5, 2147483647, -1},
                                           {D::kLe, 0, 1, 2147483647, -1}}) {
    GraphBuilder b;
    Builder r(b.region());
    const Values out = r.loop(
        {r.number(i32({}), static_cast<double>(t.first))},
        [&](Builder& in, const Values& a) {
          return Values{
              in.compare(t.direction, a[0], in.number(i32({}), static_cast<double>(t.limit)))};
        },
        [&](Builder& in, const Values& a) {
          return Values{in.add(a[0], in.number(i32({}), static_cast<double>(t.step)))};
        });
    b.done(out);
    const auto loop = counted_loop(*out[0]->def);
    SCOPED_TRACE(std::to_string(t.first) + " by " + std::to_string(t.step) + " to " +
                 std::to_string(t.limit));
    if (t.trips < 0) {
      EXPECT_FALSE(loop.has_value());
    } else {
      ASSERT_TRUE(loop.has_value());
      EXPECT_EQ(loop->trips, t.trips);
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
