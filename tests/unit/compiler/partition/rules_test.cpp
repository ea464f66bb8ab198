// The factor rule of every class of ops, as text, and proved by computing on parts.
#include "partition/rules/rules.hpp"

#include <gtest/gtest.h>

#include "graph_builder.hpp"
#include "rule_check.hpp"

namespace tpu::compiler::test {
namespace {

class Rules : public testing::Test {
 protected:
  // The rule of the op that makes `v`, computed on parts at least `cuts` ways.
  std::string rule(const Value* v, int cuts = 1) {
    EXPECT_GE(check_rule(*v->def, random_), cuts) << print(*v->def);
    return to_text(rule_of(*v->def));
  }
  // Nothing may be cut.
  std::string whole(const Value* v) {
    EXPECT_EQ(check_rule(*v->def, random_), 0);
    return to_text(rule_of(*v->def));
  }

  // A body that is not one simple op: combines as a - b.
  Value* with_difference(Value* v) { return b.with_body(v, Kind::kSubtract); }

  Value* variadic(Kind kind, std::vector<Value*> operands, std::vector<Type> results, Attrs attrs) {
    return b.region()
        .append(kind, std::move(operands), std::move(results), std::move(attrs), unknown_loc())
        ->result();
  }

  // Two results: the first of each pair in both.
  Value* with_pair_body(Value* v) {
    Op& op = *v->def;
    Region* body = op.add_region();
    std::vector<Value*> args;
    for (int i = 0; i < 4; ++i) {
      args.push_back(body->add_arg({op.type(static_cast<size_t>(i % 2)).elem, {}}));
    }
    Value* first =
        body->append(Kind::kAdd, {args[0], args[2]}, {args[0]->type}, NoAttrs{}, unknown_loc())
            ->result();
    Value* second =
        body->append(Kind::kMaximum, {args[1], args[3]}, {args[1]->type}, NoAttrs{}, unknown_loc())
            ->result();
    body->append(Kind::kReturn, {first, second}, {}, NoAttrs{}, unknown_loc());
    return v;
  }

  Value* with_compare(Value* v) {
    Op& op = *v->def;
    Region* body = op.add_region();
    std::vector<Value*> args;
    for (const Value* x : op.operands) {
      args.push_back(body->add_arg({x->type.elem, {}}));
      args.push_back(body->add_arg({x->type.elem, {}}));
    }
    Value* less =
        body->append(Kind::kCompare, {args[0], args[1]}, {i1({})},
                     CompareAttrs{CompareDirection::kLt, CompareType::kNone}, unknown_loc())
            ->result();
    body->append(Kind::kReturn, {less}, {}, NoAttrs{}, unknown_loc());
    return v;
  }

  GraphBuilder b;
  std::mt19937 random_{7};
};

TEST_F(Rules, ElementwisePassesAllDimensions) {
  Value* x = b.arg(f32({4, 8}));
  EXPECT_EQ(rule(b.op(Kind::kAbs, {x}, x->type), 4), "[a,b] -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kAdd, {x, b.arg(x->type)}, x->type)), "[a,b][a,b] -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kConvert, {x}, i32({4, 8}))), "[a,b] -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kReducePrecision, {x}, x->type, ReducePrecisionAttrs{})),
            "[a,b] -> [a,b]");
}

TEST_F(Rules, ScalarOperandsOfSelectAndClampHaveNoFactors) {
  Value* x = b.arg(f32({4, 8}));
  Value* s = b.arg(f32({}));
  EXPECT_EQ(rule(b.op(Kind::kClamp, {s, x, s}, x->type)), "[][a,b][] -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kSelect, {b.arg(i1({})), x, x}, x->type)), "[][a,b][a,b] -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kSelect, {b.arg(i1({4, 8})), x, x}, x->type)),
            "[a,b][a,b][a,b] -> [a,b]");
  EXPECT_EQ(whole(b.op(Kind::kAdd, {s, s}, s->type)), "[][] -> []");
}

TEST_F(Rules, BitcastToAnotherWidthPassesTheSharedDimensions) {
  Value* x = b.arg(f32({4, 2}));
  EXPECT_EQ(rule(b.op(Kind::kBitcastConvert, {x}, i32({4, 2}))), "[a,b] -> [a,b]");
}

TEST_F(Rules, SourcesPassAndConstantsOfManyValuesDoNot) {
  EXPECT_EQ(rule(b.op(Kind::kIota, {}, i32({4, 8}), DimAttrs{1}), 4), " -> [a,b]");
  EXPECT_EQ(rule(b.op(Kind::kIota, {}, f32({8}), DimAttrs{0})), " -> [a]");
  EXPECT_EQ(rule(b.constant(f32({4, 8}), 3)), " -> [a,b]");
  const Dense dense = make_dense_of<float>(f32({4}), {1, 2, 3, 4});
  EXPECT_EQ(whole(b.op(Kind::kConstant, {}, f32({4}), ConstantAttrs{dense})), " -> [#]");
}

TEST_F(Rules, BroadcastPassesExpandedDimensionsOfTheResultAlone) {
  Value* x = b.arg(f32({4, 1}));
  EXPECT_EQ(rule(b.op(Kind::kBroadcastInDim, {x}, f32({2, 4, 8}), DimsAttrs{{1, 2}})),
            "[a,1] -> [b,a,c]");
  EXPECT_EQ(rule(b.op(Kind::kBroadcastInDim, {b.arg(f32({}))}, f32({4}), DimsAttrs{{}})),
            "[] -> [a]");
}

TEST_F(Rules, TransposePermutes) {
  EXPECT_EQ(
      rule(b.op(Kind::kTranspose, {b.arg(f32({2, 4, 8}))}, f32({8, 2, 4}), DimsAttrs{{2, 0, 1}})),
      "[a,b,c] -> [c,a,b]");
}

TEST_F(Rules, ReshapeSplitsAndMergesByCommonParts) {
  const auto reshape = [&](Dims from, Dims to) {
    return rule(b.op(Kind::kReshape, {b.arg(f32(std::move(from)))}, f32(std::move(to))), 0);
  };
  EXPECT_EQ(reshape({4, 8}, {32}), "[a,b] -> [a*b]");
  EXPECT_EQ(reshape({32}, {4, 8}), "[a*b] -> [a,b]");
  EXPECT_EQ(reshape({8, 6}, {2, 4, 6}), "[a*b,c] -> [a,b,c]");
  EXPECT_EQ(reshape({8, 1, 6}, {1, 8, 6, 1}), "[a,1,b] -> [1,a,b,1]");
  EXPECT_EQ(reshape({6, 4}, {2, 12}), "[a*b,c] -> [a,b*c]");
  EXPECT_EQ(reshape({4, 3}, {6, 2}), "[a*#,#] -> [a*#,#]");
  EXPECT_EQ(reshape({2, 3, 8}, {3, 2, 8}), "[#,#,a] -> [#,#,a]");  // in step again behind 6
  EXPECT_EQ(reshape({1}, {}), "[1] -> []");
  EXPECT_EQ(reshape({0, 4}, {4, 0}), "[#,#] -> [#,#]");
}

TEST_F(Rules, SliceAndPadPassWhereBlocksStayTogether) {
  Value* x = b.arg(f32({8, 4, 8}));
  EXPECT_EQ(
      rule(b.op(Kind::kSlice, {x}, f32({8, 2, 4}), SliceAttrs{{0, 1, 1}, {8, 3, 8}, {1, 1, 2}})),
      "[a,#,b*#] -> [a,#,b]");
  Value* zero = b.arg(f32({}));
  EXPECT_EQ(rule(b.op(Kind::kPad, {b.arg(f32({8, 4, 4})), zero}, f32({8, 6, 8}),
                      PadAttrs{{0, 1, 1}, {0, 1, 0}, {0, 0, 1}})),
            "[a,#,b][] -> [a,#,b*#]");
  EXPECT_EQ(whole(b.op(Kind::kPad, {b.arg(f32({0})), zero}, f32({1}), PadAttrs{{1}, {0}, {1}})),
            "[#][] -> [1]");
}

TEST_F(Rules, ReverseAndConcatenatePassOtherDimensions) {
  Value* x = b.arg(f32({4, 8}));
  EXPECT_EQ(rule(b.op(Kind::kReverse, {x}, x->type, DimsAttrs{{0}})), "[#,a] -> [#,a]");
  EXPECT_EQ(rule(b.op(Kind::kConcatenate, {x, b.arg(f32({2, 8}))}, f32({6, 8}), DimAttrs{0})),
            "[#,a][#,a] -> [#,a]");
}

TEST_F(Rules, DynamicSlicesPassWholeDimensions) {
  Value* x = b.arg(f32({8, 8}));
  Value* i = b.arg(i32({}));
  EXPECT_EQ(rule(b.op(Kind::kDynamicSlice, {x, i, i}, f32({8, 2}), DimsAttrs{{8, 2}})),
            "[a,#][][] -> [a,#]");
  EXPECT_EQ(rule(b.op(Kind::kDynamicUpdateSlice, {x, b.arg(f32({8, 2})), i, i}, x->type)),
            "[a,#][a,#][][] -> [a,#]");
}

TEST_F(Rules, SortPassesOtherDimensions) {
  Value* k = b.arg(f32({4, 8}));
  Value* v = b.arg(i32({4, 8}));
  EXPECT_EQ(
      rule(with_compare(variadic(Kind::kSort, {k, v}, {k->type, v->type}, SortAttrs{1, true}))),
      "[a,#][a,#] -> [a,#][a,#]");
}

TEST_F(Rules, ReduceWithASimpleBodyReduces) {
  Value* x = b.arg(f32({4, 8, 4}));
  Value* init = b.arg(f32({}));  // not the identity
  for (const Kind k : {Kind::kAdd, Kind::kMultiply, Kind::kMaximum, Kind::kMinimum}) {
    EXPECT_EQ(rule(b.reduce(x, init, {0, 2}, f32({8}), k), 6), "[A,b,C][] -> [b]");
  }
  Value* n = b.arg(i32({4, 8}));
  for (const Kind k : {Kind::kAnd, Kind::kOr, Kind::kXor}) {
    EXPECT_EQ(rule(b.reduce(n, b.arg(i32({})), {0}, i32({8}), k)), "[A,b][] -> [b]");
  }
}

TEST_F(Rules, OtherReductionsPassKeptDimensions) {
  Value* x = b.arg(f32({4, 8}));
  EXPECT_EQ(
      rule(with_difference(b.op(Kind::kReduce, {x, b.arg(f32({}))}, f32({4}), DimsAttrs{{1}}))),
      "[a,#][] -> [a]");
  EXPECT_EQ(rule(with_pair_body(variadic(Kind::kReduce,
                                         {x, b.arg(i32({4, 8})), b.arg(f32({})), b.arg(i32({}))},
                                         {f32({8}), i32({8})}, DimsAttrs{{0}}))),
            "[#,a][#,a][][] -> [a][a]");
}

TEST_F(Rules, PoolingPassesBatchAndFeaturesAndWindowsSideBySide) {
  Value* x = b.arg(f32({4, 8, 6, 2}));
  const Dims ones(4, 1), zeros(4, 0);
  Value* init = b.arg(f32({}));
  const auto pool = [&](const WindowAttrs& a, Dims out) {
    return b.with_body(b.op(Kind::kReduceWindow, {x, init}, f32(std::move(out)), a),
                       Kind::kMaximum);
  };
  EXPECT_EQ(rule(pool({{1, 2, 3, 1}, {1, 2, 1, 1}, ones, ones, zeros, zeros}, {4, 4, 4, 2})),
            "[a,b*#,#,c][] -> [a,b,#,c]");
  EXPECT_EQ(rule(pool({{1, 2, 3, 1}, {1, 2, 3, 1}, ones, ones, {0, 1, 0, 0}, zeros}, {4, 4, 2, 2})),
            "[a,#,b*#,c][] -> [a,#,b,c]");
  EXPECT_EQ(rule(pool({{1, 8, 1, 1}, ones, ones, ones, {0, 7, 0, 0}, zeros}, {4, 8, 6, 2})),
            "[a,#,b,c][] -> [a,#,b,c]");  // cumulative along one dimension
}

TEST_F(Rules, GradientOfPoolingLikewise) {
  const Dims ones(3, 1), zeros(3, 0);
  Value* x = b.arg(f32({4, 8, 6}));
  Value* v = b.op(Kind::kSelectAndScatter, {x, b.arg(f32({4, 4, 4})), b.arg(f32({}))}, x->type,
                  WindowAttrs{{1, 2, 3}, {1, 2, 1}, ones, ones, zeros, zeros});
  Region* select = v->def->add_region();
  Value* l = select->add_arg(f32({}));
  Value* r = select->add_arg(f32({}));
  Value* ge = select
                  ->append(Kind::kCompare, {l, r}, {i1({})},
                           CompareAttrs{CompareDirection::kGe, CompareType::kNone}, unknown_loc())
                  ->result();
  select->append(Kind::kReturn, {ge}, {}, NoAttrs{}, unknown_loc());
  EXPECT_EQ(rule(b.with_body(v, Kind::kAdd)), "[a,b*#,#][a,b,#][] -> [a,b*#,#]");
}

TEST_F(Rules, DotPassesBatchAndSidesAndReducesTheContracted) {
  Value* x = b.arg(f32({8, 4}));
  EXPECT_EQ(rule(b.op(Kind::kDotGeneral, {x, b.arg(f32({4, 8}))}, f32({8, 8}),
                      DotAttrs{{}, {}, {1}, {0}}),
                 8),
            "[a,B][B,c] -> [a,c]");
  // attention: batch, heads; queries x keys
  EXPECT_EQ(rule(b.op(Kind::kDotGeneral, {b.arg(f32({2, 4, 4, 2})), b.arg(f32({2, 8, 4, 2}))},
                      f32({2, 4, 4, 8}), DotAttrs{{0, 2}, {0, 2}, {3}, {3}})),
            "[a,b,c,D][a,e,c,D] -> [a,c,b,e]");
}

TEST_F(Rules, FactorisationsPassTheBatch) {
  Value* a = b.arg(f32({4, 2, 3, 3}));
  EXPECT_EQ(rule(b.op(Kind::kCholesky, {a}, a->type, CholeskyAttrs{true})),
            "[a,b,#,#] -> [a,b,#,#]");
  EXPECT_EQ(rule(variadic(Kind::kQr, {a}, {a->type, f32({4, 2, 3})}, NoAttrs{})),
            "[a,b,#,#] -> [a,b,#,#][a,b,#]");
  EXPECT_EQ(rule(b.op(Kind::kHouseholderProduct, {a, b.arg(f32({4, 2, 2}))}, a->type)),
            "[a,b,#,#][a,b,#] -> [a,b,#,#]");
  EXPECT_EQ(rule(variadic(Kind::kLu, {a}, {a->type, i32({4, 2, 3}), i32({4, 2, 3})}, NoAttrs{})),
            "[a,b,#,#] -> [a,b,#,#][a,b,#][a,b,#]");
  const Value* e = variadic(Kind::kEigh, {a}, {a->type, f32({4, 2, 3})}, EighAttrs{});
  EXPECT_EQ(to_text(rule_of(*e->def)), "[a,b,#,#] -> [a,b,#,#][a,b,#]");
}

TEST_F(Rules, SidesOfASystemPass) {
  Value* a = b.arg(f32({2, 3, 3}));
  EXPECT_EQ(rule(b.op(Kind::kTriangularSolve, {a, b.arg(f32({2, 3, 4}))}, f32({2, 3, 4}),
                      TriangularSolveAttrs{true})),
            "[a,#,#][a,#,b] -> [a,#,b]");
  EXPECT_EQ(rule(b.op(Kind::kTriangularSolve, {a, b.arg(f32({2, 4, 3}))}, f32({2, 4, 3}),
                      TriangularSolveAttrs{false})),
            "[a,#,#][a,b,#] -> [a,b,#]");
}

TEST_F(Rules, BarrierAndMapPassEverything) {
  Value* x = b.arg(f32({4, 8}));
  Value* y = b.arg(i32({4}));
  EXPECT_EQ(rule(variadic(Kind::kOptimizationBarrier, {x, y}, {x->type, y->type}, NoAttrs{})),
            "[a,b][c] -> [a,b][c]");
  EXPECT_EQ(rule(b.with_body(b.op(Kind::kMap, {x, x}, x->type, DimsAttrs{{0, 1}}), Kind::kAdd)),
            "[a,b][a,b] -> [a,b]");
}

TEST_F(Rules, RandomBitsAreWhole) {
  Value* v = variadic(Kind::kRngBitGenerator, {b.arg({Elem::kU32, {2}})},
                      {{Elem::kU32, {2}}, {Elem::kU32, {4}}}, RngAttrs{"three_fry"});
  EXPECT_EQ(to_text(rule_of(*v->def)), "[#] -> [#][#]");
}

TEST_F(Rules, IdentitiesOfReducers) {
  EXPECT_TRUE(is_identity(Kind::kAdd, make_splat(f32({4}), 0)));
  EXPECT_FALSE(is_identity(Kind::kAdd, make_splat(f32({4}), 1)));
  EXPECT_TRUE(is_identity(Kind::kMultiply, make_splat_int(i32({}), 1)));
  EXPECT_FALSE(is_identity(Kind::kAdd, make_dense_of<float>(f32({2}), {0, 0})));
  const Value* r = b.reduce(b.arg(f32({4})), b.arg(f32({})), {0}, f32({}), Kind::kMaximum);
  EXPECT_EQ(combined_once(*r->def, Kind::kMaximum), std::nullopt);  // as often as one likes
  EXPECT_EQ(combined_once(*r->def, Kind::kAdd), 1U);
}

}  // namespace
}  // namespace tpu::compiler::test
