// The pass `partition` on ops of all kinds: equal values, and the collectives that it must come to.
#include "distribution.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tpu::compiler::test {
namespace {

// [2, 8] -> [4, 4] has the factors 2, 2, 4: with the first one whole no part of the second can be
// a part of the result's rows, and then none of the third a part of the operand's columns.
TEST(Distribution, AFactorBehindOneThatStaysWholeStaysWhole) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({2, 8}), {{}, {0, 1, 2}});
              return {g.op(Kind::kReshape, {x}, f32({4, 4}))};
            }),
            "all_gather");
}

TEST(Distribution, ElementwiseWorkMovesNothing) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 6}), {{0, 1, 2}, {}});
              Value* y = g.arg(f32({8, 6}));
              return {g.op(Kind::kAdd, {g.op(Kind::kAbs, {x}, x->type), y}, x->type)};
            }),
            "");
}

TEST(Distribution, AnArgumentThatNothingIsSaidOfLiesAsItsUserDoes) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 6}), {{0}, {1}});
    return {b.op(Kind::kAdd, {x, b.arg(f32({8, 6}))}, x->type)};
  });
  EXPECT_EQ(m.main->args[1].sharding.dim_axes, (Cut{{0}, {1}}));
}

TEST(Distribution, AContractedDimensionIsSummed) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({4, 8}), {{}, {0, 1, 2}});
              Value* w = g.cut_arg(f32({8, 3}), {{0, 1, 2}, {}});
              return {g.dot(x, w, f32({4, 3}))};
            }),
            "all_reduce");
}

// Two layers as Megatron cuts them: columns, then rows.
TEST(Distribution, TwoLayersCutByTheModelAxisSumOnce) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 4}), {{0, 1}, {}});
              Value* up = g.cut_arg(f32({4, 6}), {{}, {2}});
              Value* down = g.cut_arg(f32({6, 4}), {{2}, {}});
              Value* h = g.op(Kind::kAbs, {g.dot(x, up, f32({8, 6}))}, f32({8, 6}));
              return {g.dot(h, down, f32({8, 4}))};
            }),
            "all_reduce");
}

// The gradient of weights that lie on their owners goes to these alone.
TEST(Distribution, ASumThatIsWantedCutIsScattered) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({4, 16}), {{}, {0, 1, 2}});
              Value* y = g.cut_arg(f32({16, 8}), {{0, 1, 2}, {}});
              return {g.constrain(g.dot(x, y, f32({4, 8})), {{}, {2}})};
            }),
            "reduce_scatter all_reduce");
}

TEST(Distribution, ReductionsWithAnInitialValueTakeItOnce) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 3}), {{0, 1}, {}});
              Value* total = g.reduce(x, g.constant(f32({}), 5), {0}, f32({3}), Kind::kAdd);
              Value* most = g.reduce(x, g.constant(f32({}), -2), {0}, f32({3}), Kind::kMaximum);
              return {total, most};
            }),
            "all_reduce all_reduce");
}

TEST(Distribution, ConstraintsExchangePermuteAndGather) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 8}), {{0, 1}, {}});
              Value* columns = g.constrain(x, {{}, {0, 1}});
              Value* swapped = g.constrain(columns, {{}, {1, 0}});
              Value* half = g.constrain(swapped, {{}, {1}});
              Value* other = g.constrain(half, {{2}, {1}});
              return {g.constrain(other, {{}, {}})};
            }),
            "all_to_all collective_permute all_gather all_gather all_gather");
}

TEST(Distribution, IotaCountsFromWhereThePartBegins) {
  for (const Cut& cut : {Cut{{0, 1, 2}, {}}, Cut{{2}, {0}}, Cut{{}, {1}}}) {
    EXPECT_EQ(moves_of([&](Graph& g) -> Values {
                Value* x = g.cut_arg(f32({8, 4}), cut);
                Value* rows = g.op(Kind::kIota, {}, f32({8, 4}), DimAttrs{0});
                Value* columns = g.op(Kind::kIota, {}, f32({8, 4}), DimAttrs{1});
                return {g.op(Kind::kAdd, {g.op(Kind::kAdd, {x, rows}, x->type), columns}, x->type)};
              }),
              "");
  }
}

TEST(Distribution, WhatALoopCarriesStaysCut) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
              RegionBuilder r(g.region());
              return {r.times(3, {x}, [](RegionBuilder& b, const Values& a) -> Values {
                return {b.add(a[1], a[1])};
              })[0]};
            }),
            "");
}

// Two weights' gradients of one array: added on each core, then summed.
TEST(Distribution, SumsThatAreAddedAreSummedOnce) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({4, 8}), {{}, {0, 1, 2}});
              Value* v = g.cut_arg(f32({8, 3}), {{0, 1, 2}, {}});
              Value* w = g.cut_arg(f32({8, 3}), {{0, 1, 2}, {}});
              Value* a = g.dot(x, v, f32({4, 3}));
              Value* b = g.dot(x, w, f32({4, 3}));
              Value* both = g.op(Kind::kAdd, {a, b}, a->type);
              return {g.op(Kind::kAdd, {both, g.dot(x, v, f32({4, 3}))}, a->type)};
            }),
            "all_reduce");
}

// Of sums that are added each core gets its part once.
TEST(Distribution, ScatteredSumsThatAreAddedAreScatteredOnce) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              const Type result = f32({8, 3});
              Value* x = g.cut_arg(f32({8, 16}), {{}, {0, 1, 2}});
              const auto term = [&] {
                return g.dot(x, g.cut_arg(f32({16, 3}), {{0, 1, 2}, {}}), result);
              };
              Value* both = g.op(Kind::kAdd, {term(), term()}, result);
              return {g.constrain(g.op(Kind::kAdd, {both, term()}, result), {{0, 1, 2}, {}})};
            }),
            "reduce_scatter");
}

// Zero in front of a sum may be added by every core, so nothing stands between such sums.
TEST(Distribution, SumsThatBeginWithZeroAreSummedOnce) {
  EXPECT_EQ(
      moves_of([](Graph& g) -> Values {
        Value* x = g.cut_arg(f32({8, 3}), {{0, 1}, {}});
        Value* y = g.cut_arg(f32({8, 3}), {{0, 1}, {}});
        return {g.op(Kind::kAdd, {g.sum(x, {0}, f32({3})), g.sum(y, {0}, f32({3}))}, f32({3}))};
      }),
      "all_reduce");
}

// Contractions of bf16 are summed in f32 and rounded behind that: so are those that are added.
TEST(Distribution, RoundedSumsThatAreAddedAreSummedOnce) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              const auto narrow = [&](Dims dims, Cut cut) {
                Value* x = g.op(Kind::kSign, {g.cut_arg(f32(dims), std::move(cut))}, f32(dims));
                return g.op(Kind::kConvert, {x}, {Elem::kBf16, dims});
              };
              Value* x = narrow({4, 8}, {{}, {0, 1, 2}});
              const auto term = [&] {
                return g.dot(x, narrow({8, 6}, {{0, 1, 2}, {}}), {Elem::kBf16, {4, 6}});
              };
              const auto add = [&](Value* a, Value* b) {
                return g.op(Kind::kAdd, {a, b}, a->type);
              };
              Value* ahead = narrow({4, 6}, {});  // other + sum + sum
              Value* sums = add(add(add(ahead, term()), term()), term());
              Value* turned = g.op(Kind::kReshape, {term()}, {Elem::kBf16, {4, 6}});
              return {g.op(Kind::kConvert, {add(sums, turned)}, f32({4, 6}))};
            }),
            "all_reduce");
}

// Statistics of the whole batch: means, variances, and the sums of the gradients.
TEST(Distribution, BatchNormSumsOverTheBatch) {
  const BatchNormAttrs attrs{0.5, 1};
  const auto results = [](Op* op) {
    Values out;
    for (const auto& r : op->results) {
      out.push_back(r.get());
    }
    return out;
  };
  const Type one = f32({4});
  EXPECT_EQ(
      moves_of([&](Graph& g) -> Values {
        Value* x = g.cut_arg(f32({16, 4}), {{0, 1, 2}, {}});
        return results(g.region().append(Kind::kBatchNormTraining, {x, g.arg(one), g.arg(one)},
                                         {x->type, one, one}, attrs, unknown_loc()));
      }),
      "all_reduce all_reduce");
  EXPECT_EQ(
      moves_of([&](Graph& g) -> Values {
        Value* x = g.cut_arg(f32({16, 4}), {{0, 1}, {}});
        Value* mean = g.constant(one, 2);
        Value* variance = g.constant(one, 3.5);  // the root of 4 is exact
        Value* dy = g.cut_arg(x->type, {{0, 1}, {}});
        return results(g.region().append(Kind::kBatchNormGrad, {x, g.arg(one), mean, variance, dy},
                                         {x->type, one, one}, attrs, unknown_loc()));
      }),
      "all_reduce all_reduce");
}

// A loop that adds up sums: summed behind it, with what it began with once.
TEST(Distribution, SumsLeaveTheLoopThatAddsThemUp) {
  for (const double first : {0.0, 3.0}) {
    const Build build = [&](Graph& g) -> Values {
      Value* x = g.cut_arg(f32({4, 8}), {{}, {0, 1, 2}});
      Value* w = g.cut_arg(f32({8, 3}), {{0, 1, 2}, {}});
      RegionBuilder r(g.region());
      return r.times(3, {g.constant(f32({4, 3}), first), x},
                     [&](RegionBuilder& in, const Values& a) -> Values {
                       DotAttrs dot;
                       dot.lhs_contract = {1};
                       dot.rhs_contract = {0};
                       Value* y = in.op(Kind::kDotGeneral, {a[2], w}, f32({4, 3}), dot);
                       return {in.add(a[1], y), in.add(a[2], a[2])};
                     });
    };
    EXPECT_EQ(moves_of(build), "all_reduce");
    Graph g(true);
    const Module& m = partitioned(g, build);
    EXPECT_EQ(count_of(m.main->body, Kind::kAllReduce), 1);
  }
}

// The gradients of layers that a scan goes over: stored as each core has them, summed behind it.
// What is in the places that the loop leaves alone must not be summed.
TEST(Distribution, SumsLeaveTheLoopThatStoresThem) {
  for (const double first : {0.0, 3.0}) {
    const Build build = [&](Graph& g) -> Values {
      Value* x = g.cut_arg(f32({8, 3}), {{0, 1, 2}, {}});
      Value* ones = g.constant(f32({8, 1}), 1);
      RegionBuilder r(g.region());
      return r.times(
          3, {g.constant(f32({5, 3}), first), x},
          [&](RegionBuilder& in, const Values& a) -> Values {
            DotAttrs dot;
            dot.lhs_contract = dot.rhs_contract = {0};
            Value* row = in.op(Kind::kDotGeneral, {ones, a[2]}, f32({1, 3}), dot);
            Value* zero = in.number(i32({}), 0);
            Value* rows = in.op(Kind::kDynamicUpdateSlice, {a[1], row, a[0], zero}, f32({5, 3}));
            return {rows, in.add(a[2], a[2])};
          });
    };
    EXPECT_EQ(moves_of(build), "all_reduce");
    Graph g(true);
    const Module& m = partitioned(g, build);
    EXPECT_EQ(count_of(m.main->body, Kind::kAllReduce), first == 0 ? 1 : 0);
    EXPECT_EQ(m.moved.at(0).bytes, first == 0 ? 120 : 24);
  }
}

// Weights that lie cut are gathered where the batch is the larger array, as FSDP does it.
TEST(Distribution, TheSmallerArrayMoves) {
  const auto layer = [](int64_t batch) {
    return moves_of([=](Graph& g) -> Values {
      Value* x = g.cut_arg(f32({batch, 64}), {{0, 1, 2}, {}});
      Value* w = g.cut_arg(f32({64, 256}), {{0, 1, 2}, {}});
      return {g.constrain(g.dot(x, w, f32({batch, 256})), {{0, 1, 2}, {}})};
    });
  };
  EXPECT_EQ(layer(64), "all_gather");
  EXPECT_EQ(layer(8), "all_to_all reduce_scatter");
}

// A scalar spread over arrays of one shape is one value of the graph; how one of its users lies is
// nothing to the others.
TEST(Distribution, ASharedScalarTiesNothingTogether) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* rate = g.arg(f32({}));
              Value* x = g.cut_arg(f32({8}), {{0, 1, 2}});
              Value* y = g.cut_arg(f32({8}), {{}});
              Value* spread = g.op(Kind::kBroadcastInDim, {rate}, f32({8}), DimsAttrs{});
              return {g.op(Kind::kMultiply, {x, spread}, x->type),
                      g.constrain(g.op(Kind::kMultiply, {y, spread}, y->type), {{}})};
            }),
            "");
}

// A gradient that lies cut, of parameters and momentum that lie whole and are given back so: it is
// gathered, and not the two results. One result alone is worked on in parts.
TEST(Distribution, AGradientMovesOnceToWhatItUpdates) {
  const auto step = [](bool momentum) {
    return moves_of([=](Graph& g) -> Values {
      Value* x = g.cut_arg(f32({4, 8}), {{}, {1, 2}});
      const auto donated = [&](int result) {
        Value* v = g.cut_arg(f32({8}), {{}});
        g.module().main->args.back().alias_result = result;
        return v;
      };
      Value* p = donated(0);
      const auto add = [&](Value* a, Value* b) { return g.op(Kind::kAdd, {a, b}, a->type); };
      Value* grad = g.sum(x, {0}, f32({8}));
      if (!momentum) {
        return {add(p, g.op(Kind::kNegate, {grad}, p->type))};
      }
      Value* m = add(donated(1), g.op(Kind::kNegate, {grad}, p->type));
      return {add(p, add(m, g.op(Kind::kAbs, {grad}, p->type))), m};
    });
  };
  EXPECT_EQ(step(true), "all_gather");
  EXPECT_EQ(step(false), "all_gather");
}

// Moved once, before the loop, although the loop uses it.
TEST(Distribution, WhatALoopReadsIsMovedBeforeIt) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 2}), {{0}, {}});
    Value* y = b.cut_arg(f32({8, 2}), {{0}, {}});
    RegionBuilder r(b.region());
    return {r.times(3, {x}, [&](RegionBuilder& in, const Values& a) -> Values {
      return {in.add(a[1], in.op(Kind::kReverse, {y}, y->type, DimsAttrs{{0}}))};
    })[0]};
  });
  EXPECT_EQ(count_of(m.main->body, Kind::kAllGather), 1);
  EXPECT_EQ(m.moved.size(), 1u);
}

TEST(Distribution, MovesNameTheOpAndWhatACoreGets) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
    return {b.op(Kind::kReverse, {x}, x->type, DimsAttrs{{0}})};
  });
  ASSERT_EQ(m.moved.size(), 1u);
  EXPECT_EQ(m.moved[0].kind, Kind::kAllGather);
  EXPECT_EQ(m.moved[0].op, "stablehlo.reverse");
  EXPECT_EQ(m.moved[0].type, f32({1, 2}));
  EXPECT_EQ(m.moved[0].bytes, 64);
  EXPECT_EQ(m.moved[0].loc->frames[0].line, 1u);
}

const std::vector<int64_t> kTurned{2, 3, 0, 1, 7, 6, 5, 4};

TEST(Distribution, AnArgumentOfAMeshInAnotherOrderGoesToItsPlaces) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
              if (auto& wanted = g.module().main->args[0].wanted) {
                wanted->sharding.order = kTurned;
              }
              return {g.op(Kind::kReverse, {x}, x->type, DimsAttrs{{1}})};
            }),
            "collective_permute");
}

TEST(Distribution, AShardMapOfAMeshInAnotherOrderGetsItsParts) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 2}), {{0, 1, 2}, {}});
    ShardingAttrs turned = by({{0, 1, 2}, {}});
    turned.sharding.order = kTurned;
    ManualAttrs a{{turned}, {turned}, {0, 1, 2}};
    Op* map = b.region().append(Kind::kManualComputation, {x}, {x->type}, a, unknown_loc());
    Region* body = map->add_region();
    Value* part = body->add_arg(f32({1, 2}));
    Op* negated = body->append(Kind::kNegate, {part}, {part->type}, NoAttrs{}, unknown_loc());
    body->append(Kind::kReturn, {negated->result()}, {}, NoAttrs{}, unknown_loc());
    return {map->result()};
  });
  ASSERT_EQ(m.moved.size(), 2u);
  EXPECT_EQ(m.moved[0].kind, Kind::kCollectivePermute);
  const auto args = inputs(m);
  const auto got = join_results(m, interpret(m, split_arguments(m, args)));
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values<float>(got[0])[i], -values<float>(args[0])[i]);
  }
}

// A product along the axis a, whose terms the cores keep.
Value* product_of_terms(Graph& g) {
  Value* x = g.cut_arg(f32({4, 8}), {{}, {0}});
  Value* w = g.cut_arg(f32({8, 2}), {{0}, {}});
  return g.terms(g.dot(x, w, f32({4, 2})), {{}, {}}, {0});
}

TEST(Unreduced, TermsAreSummedWhereTheProgramAsks) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = product_of_terms(g);
              Value* twice = g.terms(g.op(Kind::kAdd, {x, x}, x->type), {{}, {}}, {0});
              return {g.constrain(twice, {{}, {}})};
            }),
            "all_reduce");
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              return {g.constrain(product_of_terms(g), {{0}, {}})};
            }),
            "reduce_scatter");
}

TEST(Unreduced, WhatIsNotLinearGetsTheSum) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = product_of_terms(g);
              Value* square = g.op(Kind::kMultiply, {x, x}, x->type);
              Value* y = g.op(Kind::kAdd, {g.op(Kind::kAbs, {x}, x->type), square}, x->type);
              return {g.constrain(y, {{}, {}})};
            }),
            "all_reduce");
}

TEST(Unreduced, OpsThatAreLinearWorkOnTerms) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = product_of_terms(g);
              Value* scaled = g.op(Kind::kMultiply, {x, g.arg(x->type)}, x->type);
              Value* turned = g.op(Kind::kTranspose, {scaled}, f32({2, 4}), DimsAttrs{{1, 0}});
              Value* flat = g.op(Kind::kReshape, {turned}, f32({8}));
              Value* total = g.sum(flat, {0}, f32({}));
              return {g.constrain(g.op(Kind::kNegate, {total}, f32({})), {})};
            }),
            "all_reduce");
}

// As an import writes scalars: one element, and no splat.
TEST(Unreduced, ASumThatBeginsWithAZeroElementIsLinear) {
  Graph g(true);
  const Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* zero =
        b.op(Kind::kConstant, {}, f32({}), ConstantAttrs{make_dense_of<float>(f32({}), {0.0F})});
    Value* total = b.reduce(product_of_terms(b), zero, {0, 1}, f32({}), Kind::kAdd);
    return {b.constrain(total, {})};
  });
  ASSERT_EQ(m.moved.size(), 1u);
  EXPECT_EQ(m.moved[0].type, f32({}));
}

TEST(Unreduced, CopiesAndPartsBecomeTermsOnTheSpot) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.cut_arg(f32({8, 4}), {{0}, {2}});
              return {g.constrain(g.terms(x, {{}, {2}}, {0, 1}), {{0}, {2}})};
            }),
            "reduce_scatter all_reduce");
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = g.terms(g.arg(f32({3, 4})), {{}, {}}, {0, 1, 2});
              return {g.constrain(x, {{}, {}})};
            }),
            "all_reduce");
}

TEST(Unreduced, ArgumentsAndResults) {
  Graph g(true);
  Module& m = partitioned(g, [](Graph& b) -> Values {
    Value* x = b.cut_arg(f32({8, 4}), {{0}, {}});
    b.module().main->args[0].wanted->sharding.unreduced = {1};
    return {b.terms(b.op(Kind::kAdd, {x, x}, x->type), {{0}, {}}, {1})};
  });
  EXPECT_EQ(m.main->args[0].sharding.unreduced, (std::vector<int>{1}));
  EXPECT_EQ(m.main->results[0].sharding, m.main->args[0].sharding);
  EXPECT_TRUE(m.moved.empty());
  const Tensor x = inputs(m)[0];
  const auto cores = interpret(m, split_arguments(m, {x}));
  for (size_t core = 0; core < cores.size(); ++core) {  // at (a, b, c)
    const bool first = core / 2 % 2 == 0;
    EXPECT_EQ(values<float>(cores[core][0])[0], first ? 2 * values<float>(x)[core / 4 * 16] : 0.0f);
  }
}

TEST(Unreduced, ALoopCarriesTerms) {
  EXPECT_EQ(moves_of([](Graph& g) -> Values {
              Value* x = product_of_terms(g);
              Value* zeros = g.terms(g.constant(x->type, 0), {{}, {}}, {0});
              RegionBuilder r(g.region());
              Value* sum = r.times(3, {zeros}, [&](RegionBuilder& in, const Values& a) -> Values {
                return {in.add(a[1], x)};
              })[0];
              return {g.constrain(sum, {{}, {}})};
            }),
            "all_reduce");
}

}  // namespace
}  // namespace tpu::compiler::test
