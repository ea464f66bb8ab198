// The pass `partition`: what may not be moved, merged or cut although it nearly could.
#include <gmock/gmock.h>

#include "distribution.hpp"

namespace tpu::compiler::test {
namespace {

// Devices that stand in another order in the mesh: parts are by place, not by number.
TEST(DistributionLimits, PartsFollowThePlaceOfACoreInTheMesh) {
  const Build build = [](Graph& g) -> Values {
    if (g.module().num_cores > 1) {
      g.module().mesh.device_ids = {3, 1, 0, 2, 7, 5, 4, 6};
    }
    Value* whole = g.arg(f32({8, 4}));
    Value* rows = g.constrain(whole, {{0, 1, 2}, {}});
    Value* iota = g.op(Kind::kIota, {}, f32({8, 4}), DimAttrs{0});
    Value* columns = g.constrain(g.op(Kind::kAdd, {rows, iota}, f32({8, 4})), {{2}, {1, 0}});
    return {rows, g.constrain(columns, {{}, {}})};
  };
  EXPECT_EQ(moves_of(build), "all_gather all_gather all_gather");
}

const CollectiveAttrs kOverAll{.groups = {{0, 1, 2, 3, 4, 5, 6, 7}}};

// Cores would add parts of the array that are not the same.
TEST(DistributionLimits, CollectivesOutsideOfAShardMapReadWholeArrays) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
    return {b.with_body(b.op(Kind::kAllReduce, {x}, x->type, kOverAll), Kind::kAdd)};
  });
  const auto args = inputs(m);
  const auto got = join_results(m, interpret(m, split_arguments(m, args)));
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values<float>(got[0])[i], 8 * values<float>(args[0])[i]);
  }
}

TEST(DistributionLimits, WhatDiffersByCoreIsNoArrayOfAll) {
  const auto error = [](const std::function<Value*(Graph&)>& make) -> std::string {
    Graph g(true);
    try {
      partitioned(g, [&](Graph& b) -> Values {
        Value* rows = b.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
        return {b.op(Kind::kNegate, {make(b)}, f32({1})),
                b.op(Kind::kReverse, {rows}, rows->type, DimsAttrs{{0}})};
      });
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  const auto refused = testing::HasSubstr("this op gives each core another value");
  EXPECT_THAT(error([](Graph& g) {
                return g.with_body(
                    g.op(Kind::kReduceScatter, {g.arg(f32({8}))}, f32({1}), kOverAll), Kind::kAdd);
              }),
              refused);
  EXPECT_THAT(
      error([](Graph& g) {
        return g.op(Kind::kCollectivePermute, {g.arg(f32({1}))}, f32({1}), PermuteAttrs{{{0, 1}}});
      }),
      refused);
  EXPECT_THAT(error([](Graph& g) {
                Value* id = g.op(Kind::kPartitionId, {}, {Elem::kU32, {}});
                return g.op(Kind::kReshape, {g.op(Kind::kConvert, {id}, f32({}))}, f32({1}));
              }),
              refused);
}

TEST(DistributionLimits, SumsOverUnlikeCoresAreNotMerged) {
  EXPECT_EQ(
      moves_of([](Graph& g) -> Values {
        Value* x = g.cut_arg(f32({8, 3}), {{0}, {}});
        Value* y = g.cut_arg(f32({8, 3}), {{1}, {}});
        return {g.op(Kind::kAdd, {g.sum(x, {0}, f32({3})), g.sum(y, {0}, f32({3}))}, f32({3}))};
      }),
      "all_reduce all_reduce");
}

// The sum cannot leave the loop: it ends by it.
TEST(DistributionLimits, ASumThatTheConditionReadsStaysInTheLoop) {
  moves_of([](Graph& g) -> Values {
    Value* x = g.cut_arg(f32({8}), {{0, 1, 2}});
    RegionBuilder r(g.region());
    return r.loop(
        {g.constant(f32({}), 0), g.constant(f32({}), 0)},
        [](RegionBuilder& in, const Values& a) {
          Value* small = in.compare(CompareDirection::kLt, a[0], in.number(f32({}), 300));
          Value* early = in.compare(CompareDirection::kLt, a[1], in.number(f32({}), 20));
          return Values{in.op(Kind::kAnd, {small, early}, i1({}))};
        },
        [&](RegionBuilder& in, const Values& a) {
          DotAttrs dot;
          dot.lhs_contract = {0};
          dot.rhs_contract = {0};
          Value* sum = in.op(Kind::kDotGeneral, {x, x}, f32({}), dot);
          return Values{in.add(a[0], sum), in.add(a[1], in.number(f32({}), 1))};
        });
  });
}

// The larger and the position of the first of equals, of values and numbers along dimension 0.
Values largest(Graph& g, Value* values, Value* numbers, const Type& type) {
  Op* op = g.region().append(Kind::kReduce,
                             {values, numbers, g.constant(f32({}), -100), g.constant(f32({}), 0)},
                             {type, type}, DimsAttrs{{0}}, unknown_loc());
  Region* body = op->add_region();
  Values in;
  for (int i = 0; i < 4; ++i) {
    in.push_back(body->add_arg(f32({})));
  }
  RegionBuilder r(*body);
  Value* first = r.compare(CompareDirection::kGe, in[0], in[2]);
  Value* value = r.op(Kind::kSelect, {first, in[0], in[2]}, f32({}));
  Value* number = r.op(Kind::kSelect, {first, in[1], in[3]}, f32({}));
  body->append(Kind::kReturn, {value, number}, {}, NoAttrs{}, unknown_loc());
  return {op->result(0), op->result(1)};
}

TEST(DistributionLimits, PartsOfALargestElementAreReducedAgain) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 4}), {{0, 1}, {2}});
              Value* n = g.op(Kind::kIota, {}, f32({8, 4}), DimAttrs{0});
              return largest(g, x, n, f32({4}));
            }),
            "all_gather all_gather");
}

// Axis 0 cannot cut the reduced dimension of one operand and the other dimension at once.
TEST(DistributionLimits, AnAxisInUseDoesNotCutTheReducedDimensionToo) {
  moves_of([](Graph& g) -> Values {
    Value* x = g.cut_arg(f32({8, 4}), {{0}, {}});
    Value* n = g.cut_arg(f32({8, 4}), {{}, {0}});
    Values both = largest(g, x, n, f32({4}));
    return {g.constrain(both[0], {{0}}), g.constrain(both[1], {{0}})};
  });
}

// 1 / -0 and 1 / +0 are far apart: what cores begin their sums with must leave -0 as it is.
TEST(DistributionLimits, ASumOfNegativeZerosIsNegative) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
              const auto negative_zero = [&](Value* v) {
                v = g.op(Kind::kSubtract, {v, v}, v->type);
                return g.op(Kind::kNegate, {v}, v->type);
              };
              Value* first = negative_zero(g.arg(f32({})));
              Value* sum = g.reduce(negative_zero(x), first, {0}, f32({2}), Kind::kAdd);
              return {g.op(Kind::kDivide, {g.constant(f32({2}), 1), sum}, f32({2}))};
            }),
            "all_reduce");
}

// Products are added up in f32 over cores too, and rounded once.
TEST(DistributionLimits, PartialProductsAreNotRounded) {
  Graph g(true);
  const Type bf16{Elem::kBf16, {4, 16}};
  const Module& m = partitioned(g, [&](Graph& in) -> Values {
    Value* x = in.cut_arg(bf16, {{}, {0, 1, 2}});
    Value* y = in.cut_arg({Elem::kBf16, {16, 8}}, {{0, 1, 2}, {}});
    return {in.dot(x, y, {Elem::kBf16, {4, 8}})};
  });
  ASSERT_EQ(m.moved.size(), 1U);
  EXPECT_EQ(m.moved[0].type.elem, Elem::kF32);
}

}  // namespace
}  // namespace tpu::compiler::test
