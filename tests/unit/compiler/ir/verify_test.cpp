// The verifier: each rule is broken once, and the error names the op and its source line.
#include "ir/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::i32;
using testing::HasSubstr;

std::string error_of(const Module& m) {
  try {
    verify(m);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// One op on arguments of the given types; the error text or "".
std::string check(Kind kind, const std::vector<Type>& in, const Type& out,
                  const Attrs& attrs = NoAttrs{}) {
  GraphBuilder b;
  std::vector<Value*> args;
  for (const Type& t : in) {
    args.push_back(b.arg(t));
  }
  return error_of(b.done({b.op(kind, args, out, attrs)}));
}

TEST(Verify, AcceptsWhatIsRight) {
  EXPECT_EQ(check(Kind::kAdd, {f32({2}), f32({2})}, f32({2})), "");
  EXPECT_EQ(check(Kind::kCompare, {i32({2}), i32({2})}, i1({2}), CompareAttrs{}), "");
  EXPECT_EQ(check(Kind::kSelect, {i1({}), f32({2}), f32({2})}, f32({2})), "");
  EXPECT_EQ(check(Kind::kPad, {f32({3}), f32({})}, f32({6}), PadAttrs{{1}, {0}, {1}}), "");
  EXPECT_EQ(check(Kind::kSlice, {f32({7})}, f32({2}), SliceAttrs{{1}, {6}, {3}}), "");
  EXPECT_EQ(check(Kind::kDotGeneral, {f32({5, 2, 3}), f32({5, 3, 4})}, f32({5, 2, 4}),
                  DotAttrs{{0}, {0}, {2}, {1}}),
            "");
}

TEST(Verify, NamesOpAndLine) {
  const std::string e = check(Kind::kAdd, {f32({2}), f32({3})}, f32({2}));
  EXPECT_THAT(e, HasSubstr("test.py:1:1: stablehlo.add: the operands must have one type"));
  EXPECT_THAT(e, HasSubstr("(f32[2], f32[3]) -> f32[2]"));
}

TEST(Verify, ElementTypes) {
  EXPECT_THAT(check(Kind::kExp, {i32({2})}, i32({2})), HasSubstr("must take floats"));
  EXPECT_THAT(check(Kind::kAnd, {f32({2}), f32({2})}, f32({2})), HasSubstr("integers or i1"));
  EXPECT_THAT(check(Kind::kConvert, {f32({2})}, i32({3})), HasSubstr("one shape"));
  EXPECT_THAT(check(Kind::kSelect, {f32({2}), f32({2}), f32({2})}, f32({2})),
              HasSubstr("predicate"));
}

TEST(Verify, Shapes) {
  EXPECT_THAT(check(Kind::kReshape, {f32({2, 3})}, f32({5})), HasSubstr("as many elements"));
  EXPECT_THAT(check(Kind::kTranspose, {f32({2, 3})}, f32({3, 2}), DimsAttrs{{1, 1}}),
              HasSubstr("repeat"));
  EXPECT_THAT(check(Kind::kTranspose, {f32({2, 3})}, f32({2, 3}), DimsAttrs{{1, 0}}),
              HasSubstr("must be f32[3,2]"));
  EXPECT_THAT(check(Kind::kBroadcastInDim, {f32({3})}, f32({2, 4}), DimsAttrs{{1}}),
              HasSubstr("does not fit"));
  EXPECT_THAT(check(Kind::kSlice, {f32({4})}, f32({3}), SliceAttrs{{2}, {5}, {1}}),
              HasSubstr("cut outside"));
  EXPECT_THAT(check(Kind::kConcatenate, {f32({2, 3}), f32({2, 4})}, f32({4, 3}), DimAttrs{0}),
              HasSubstr("differ in another dimension"));
  EXPECT_THAT(check(Kind::kIota, {}, f32({}), DimAttrs{0}), HasSubstr("dimension to count"));
}

TEST(Verify, Dots) {
  EXPECT_THAT(
      check(Kind::kDotGeneral, {f32({2, 3}), f32({4, 5})}, f32({2, 5}), DotAttrs{{}, {}, {1}, {0}}),
      HasSubstr("sizes of a pair"));
  EXPECT_THAT(
      check(Kind::kDotGeneral, {f32({2, 3}), f32({3, 5})}, f32({5, 2}), DotAttrs{{}, {}, {1}, {0}}),
      HasSubstr("shape [2,5]"));
  EXPECT_THAT(
      check(Kind::kDotGeneral, {f32({2, 3}), f32({3, 5})}, f32({2, 5}), DotAttrs{{}, {}, {2}, {0}}),
      HasSubstr("out of range"));
}

ConvAttrs images(int64_t feature_groups = 1, int64_t batch_groups = 1) {
  ConvAttrs a;
  a.window_stride = a.lhs_dilation = a.rhs_dilation = {1, 1};
  a.pad_low = a.pad_high = {0, 0};
  a.window_reversal = {false, false};
  a.input_batch = a.output_batch = 0;
  a.input_feature = a.output_feature = 3;
  a.input_spatial = a.output_spatial = {1, 2};
  a.kernel_spatial = {0, 1};
  a.kernel_input_feature = 2;
  a.kernel_output_feature = 3;
  a.feature_groups = feature_groups;
  a.batch_groups = batch_groups;
  return a;
}

TEST(Verify, Convolutions) {
  const auto conv = [](Dims x, Dims w, Dims y, const ConvAttrs& a) {
    return check(Kind::kConvolution, {f32(std::move(x)), f32(std::move(w))}, f32(std::move(y)), a);
  };
  EXPECT_EQ(conv({2, 5, 6, 4}, {3, 3, 4, 8}, {2, 3, 4, 8}, images()), "");
  EXPECT_EQ(conv({2, 5, 6, 4}, {3, 3, 2, 8}, {2, 3, 4, 8}, images(2)), "");
  EXPECT_EQ(conv({4, 5, 6, 4}, {3, 3, 4, 8}, {2, 3, 4, 8}, images(1, 2)), "");
  const char* groups = "the numbers of channels do not fit the groups";
  EXPECT_THAT(conv({2, 5, 6, 4}, {3, 3, 3, 8}, {2, 3, 4, 8}, images()), HasSubstr(groups));
  EXPECT_THAT(conv({2, 5, 6, 4}, {3, 3, 2, 7}, {2, 3, 4, 7}, images(2)), HasSubstr(groups));
  EXPECT_THAT(conv({3, 5, 6, 4}, {3, 3, 4, 8}, {1, 3, 4, 8}, images(1, 2)), HasSubstr(groups));
  EXPECT_THAT(conv({2, 5, 6, 4}, {3, 3, 4, 8}, {2, 3, 5, 8}, images()),
              HasSubstr("wrong size in spatial dimension 1"));
  ConvAttrs a = images();
  a.pad_low = {-4, 0};  // nothing is left: no position, not a negative number of them
  EXPECT_EQ(conv({2, 5, 6, 4}, {3, 3, 4, 8}, {2, 0, 4, 8}, a), "");
  a.window_stride = {0, 1};
  EXPECT_THAT(conv({2, 5, 6, 4}, {3, 3, 4, 8}, {2, 0, 4, 8}, a), HasSubstr("must be positive"));
  a = images();
  a.kernel_spatial = {0, 0};
  EXPECT_THAT(conv({2, 5, 6, 4}, {3, 3, 4, 8}, {2, 3, 4, 8}, a), HasSubstr("dimension numbers"));
}

TEST(Verify, ReductionBodies) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 3}));
  Value* zero = b.constant(f32({}), 0);
  Value* r = b.reduce(x, zero, {0}, f32({3}), Kind::kAdd);
  Module& m = b.done({r});
  EXPECT_EQ(error_of(m), "");
  r->def->regions[0]->ops.back()->operands.clear();
  EXPECT_THAT(error_of(m), HasSubstr("the body returns the wrong number of values"));
}

TEST(Verify, DefinitionBeforeUse) {
  GraphBuilder b;
  Value* x = b.arg(f32({}));
  Value* y = b.op(Kind::kNegate, {x}, f32({}));
  Value* z = b.op(Kind::kNegate, {y}, f32({}));
  Module& m = b.done({z});
  std::swap(b.region().ops[0], b.region().ops[1]);
  EXPECT_THAT(error_of(m), HasSubstr("not defined before it"));
}

TEST(Verify, NothingOutsideSeesValuesOfABody) {
  GraphBuilder b;
  Value* x = b.arg(f32({4}));
  Value* sum = b.reduce(x, b.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);
  Value* negated = b.op(Kind::kNegate, {sum}, f32({}));
  Module& m = b.done({negated});
  EXPECT_EQ(error_of(m), "");
  negated->def->operands[0] = sum->def->regions[0]->ops[0]->result();
  EXPECT_NE(error_of(m), "");
}

TEST(Verify, ClosedBodiesSeeNothingOutside) {
  GraphBuilder b(8);
  Value* x = b.arg(f32({}));
  Value* sum =
      b.with_body(b.op(Kind::kAllReduce, {x}, f32({}), CollectiveAttrs{{{0, 1, 2, 3, 4, 5, 6, 7}}}),
                  Kind::kAdd);
  Module& m = b.done({sum});
  EXPECT_EQ(error_of(m), "");
  sum->def->regions[0]->ops[0]->operands[0] = x;
  EXPECT_THAT(error_of(m), HasSubstr("not visible here"));
}

TEST(Verify, SortMayUseValuesOfTheOutside) {
  GraphBuilder b;
  Value* limit = b.arg(f32({}));
  Value* x = b.arg(f32({4}));
  Value* sorted = b.op(Kind::kSort, {x}, f32({4}), SortAttrs{});
  Module& m = b.done({sorted});
  Region* body = sorted->def->add_region();
  Value* first = body->add_arg(f32({}));
  body->add_arg(f32({}));
  const LocRef loc = sorted->def->loc;
  const Type truth{Elem::kI1, {}};
  Op* less = body->append(Kind::kCompare, {first, limit}, {truth},
                          CompareAttrs{CompareDirection::kLt, CompareType::kFloat}, loc);
  body->append(Kind::kReturn, {less->result()}, {}, NoAttrs{}, loc);
  EXPECT_EQ(error_of(m), "");
}

TEST(Verify, CollectiveGroupsHoldEveryCoreOnce) {
  const auto with = [](Groups groups) {
    GraphBuilder b(4);
    Value* x = b.arg(f32({}));
    CollectiveAttrs a;
    a.groups = std::move(groups);
    return error_of(b.done({b.with_body(b.op(Kind::kAllReduce, {x}, f32({}), a), Kind::kAdd)}));
  };
  EXPECT_EQ(with({{0, 1}, {2, 3}}), "");
  EXPECT_THAT(with({{0, 1}, {2, 2}}), HasSubstr("in two groups"));
  EXPECT_THAT(with({{0, 1}}), HasSubstr("every core"));
  EXPECT_THAT(with({{0, 1}, {2, 4}}), HasSubstr("core 4 does not exist"));
}

TEST(Verify, AttributesAndCounts) {
  EXPECT_THAT(check(Kind::kAdd, {f32({2})}, f32({2})), HasSubstr("has 1 operands, must have 2"));
  EXPECT_THAT(check(Kind::kTranspose, {f32({2})}, f32({2})), HasSubstr("attributes of another op"));
}

TEST(Verify, DonationsGoToResultsOfTheirOwn) {
  for (const int second : {0, -5, 1}) {
    GraphBuilder b;
    Value* x = b.arg(f32({2}));
    Value* y = b.arg(f32({2}));
    Module& m = b.done({b.op(Kind::kAdd, {x, y}, f32({2})), x});
    m.main->args[0].alias_result = 0;
    m.main->args[1].alias_result = second;
    if (second == 1) {
      EXPECT_NO_THROW(verify(m));
    } else {
      EXPECT_THROW(verify(m), Error);
    }
  }
}

TEST(Verify, DonationNeedsEqualTypes) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Value* y = b.op(Kind::kReshape, {x}, f32({2, 1}));
  Module& m = b.done({y});
  m.main->args[0].alias_result = 0;
  EXPECT_THAT(error_of(m), HasSubstr("donated to a result of another type"));
}

WindowAttrs window_of(int64_t size, int64_t stride, int64_t dilation = 1) {
  return {{size}, {stride}, {1}, {dilation}, {0}, {0}};
}

std::string check_with_body(Kind kind, const std::vector<Type>& in, const Type& out,
                            const Attrs& attrs, Kind body) {
  GraphBuilder b;
  std::vector<Value*> args;
  for (const Type& t : in) {
    args.push_back(b.arg(t));
  }
  return error_of(b.done({b.with_body(b.op(kind, args, out, attrs), body)}));
}

TEST(Verify, Windows) {
  const auto check_window = [](const WindowAttrs& a, const Dims& out) {
    return check_with_body(Kind::kReduceWindow, {f32({5}), f32({})}, f32(out), a, Kind::kAdd);
  };
  EXPECT_EQ(check_window(window_of(3, 1), {3}), "");
  EXPECT_EQ(check_window(window_of(9, 1), {0}), "");  // larger than the input: no position
  EXPECT_THAT(check_window(window_of(9, 1), {1}), HasSubstr("must have the shape [0]"));
  EXPECT_THAT(check_window(window_of(3, 2), {3}), HasSubstr("must have the shape [2]"));
  EXPECT_THAT(check_window(window_of(0, 1), {5}), HasSubstr("must be positive"));
  EXPECT_THAT(check_window(window_of(3, 0), {5}), HasSubstr("must be positive"));
  EXPECT_THAT(check_window(window_of(3, 1, 0), {5}), HasSubstr("must be positive"));
  EXPECT_THAT(check_with_body(Kind::kReduceWindow, {f32({5}), i32({})}, f32({3}), window_of(3, 1),
                              Kind::kAdd),
              HasSubstr("result 0"));
}

TEST(Verify, BatchNorm) {
  const std::vector<Type> in = {f32({4, 3}), f32({3}), f32({3}), f32({3}), f32({3})};
  const auto check_norm = [](const std::vector<Type>& types, int64_t feature) {
    return check(Kind::kBatchNormInference, types, types[0], BatchNormAttrs{0.1, feature});
  };
  EXPECT_EQ(check_norm(in, 1), "");
  EXPECT_THAT(check_norm(in, 0), HasSubstr("operand 1 must be f32[4]"));
  EXPECT_THAT(check_norm(in, 2), HasSubstr("feature dimension 2 is out of range"));
  EXPECT_THAT(check_norm({i32({4, 3}), i32({3}), i32({3}), i32({3}), i32({3})}, 1),
              HasSubstr("must take floats"));
}

TEST(Verify, MapsAndSorts) {
  EXPECT_EQ(check_with_body(Kind::kMap, {f32({4}), f32({4})}, f32({4}), DimsAttrs{{0}}, Kind::kAdd),
            "");
  EXPECT_THAT(
      check_with_body(Kind::kMap, {f32({4}), f32({5})}, f32({4}), DimsAttrs{{0}}, Kind::kAdd),
      HasSubstr("one shape"));
  EXPECT_THAT(check_with_body(Kind::kMap, {f32({4})}, f32({4}), DimsAttrs{{0}}, Kind::kAdd),
              HasSubstr("an element of each operand"));
  EXPECT_THAT(check_with_body(Kind::kSort, {f32({4})}, f32({4}), SortAttrs{0, true}, Kind::kAdd),
              HasSubstr("return i1"));
  EXPECT_THAT(check_with_body(Kind::kSort, {f32({4})}, f32({4}), SortAttrs{1, true}, Kind::kAdd),
              HasSubstr("out of range"));
}

TEST(Verify, MatrixOps) {
  EXPECT_EQ(check(Kind::kCholesky, {f32({2, 3, 3})}, f32({2, 3, 3}), CholeskyAttrs{}), "");
  EXPECT_THAT(check(Kind::kCholesky, {f32({2, 3})}, f32({2, 3}), CholeskyAttrs{}),
              HasSubstr("must be square"));
  EXPECT_THAT(check(Kind::kCholesky, {f32({3})}, f32({3}), CholeskyAttrs{}),
              HasSubstr("matrices of floats"));
  EXPECT_EQ(check(Kind::kTriangularSolve, {f32({3, 3}), f32({2, 3})}, f32({2, 3}),
                  TriangularSolveAttrs{false}),
            "");
  EXPECT_THAT(check(Kind::kTriangularSolve, {f32({3, 3}), f32({2, 3})}, f32({2, 3}),
                    TriangularSolveAttrs{true}),
              HasSubstr("do not fit"));
  EXPECT_THAT(check(Kind::kHouseholderProduct, {f32({2, 3}), f32({2})}, f32({2, 3})),
              HasSubstr("as many rows as columns"));
  EXPECT_THAT(check(Kind::kHouseholderProduct, {f32({3, 2}), f32({3})}, f32({3, 2})),
              HasSubstr("more reflectors"));
}

}  // namespace
}  // namespace tpu::compiler
