// The graph interpreter: semantics of arithmetic, reductions, control flow and collectives on small
// arrays.
#include "ir/interpreter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "arith/mxu_column.hpp"
#include "graph_builder.hpp"
#include "ir/verify.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::i32;
using test::tensor;
using test::values;
using testing::Each;
using testing::ElementsAre;

std::vector<Tensor> run(const Module& m, std::vector<Tensor> args) {
  verify(m);
  return interpret(m, {std::move(args)})[0];
}

std::vector<float> binary(Kind kind, const std::vector<float>& x, const std::vector<float>& y) {
  GraphBuilder b;
  const Type t = f32({static_cast<int64_t>(x.size())});
  Value* p = b.arg(t);
  Value* q = b.arg(t);
  return values<float>(run(b.done({b.op(kind, {p, q}, t)}), {tensor(t, x), tensor(t, y)})[0]);
}

std::vector<int32_t> integers(Kind kind, const std::vector<int32_t>& x,
                              const std::vector<int32_t>& y) {
  GraphBuilder b;
  const Type t = i32({static_cast<int64_t>(x.size())});
  Value* p = b.arg(t);
  Value* q = b.arg(t);
  return values<int32_t>(run(b.done({b.op(kind, {p, q}, t)}), {tensor(t, x), tensor(t, y)})[0]);
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSubnormal = 1e-40f;

TEST(Interpreter, FlushesSubnormals) {
  EXPECT_THAT(binary(Kind::kAdd, {kSubnormal, 1e-38f}, {0.0f, -0.9e-38f}), ElementsAre(0.0f, 0.0f));
  const auto product = binary(Kind::kMultiply, {1e-30f}, {-1e-30f});
  EXPECT_EQ(std::bit_cast<uint32_t>(product[0]), 0x80000000u);
}

TEST(Interpreter, NanResultsAreCanonical) {
  const auto r = binary(Kind::kSubtract, {kInf, -kNan}, {kInf, 1.0f});
  EXPECT_EQ(std::bit_cast<uint32_t>(r[0]), 0x7fc00000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(r[1]), 0x7fc00000u);
}

// Processors differ in the sign of the NaN that inf - inf gives.
TEST(Interpreter, NansOfBatchNormsAreCanonical) {
  GraphBuilder b;
  const Type x = f32({2, 2});
  const Type f = f32({2});
  Value* in = b.arg(x);
  Value* one = b.arg(f);
  const Op* norm = b.region().append(Kind::kBatchNormTraining, {in, one, one}, {x, f, f},
                                     BatchNormAttrs{0.0, 1}, unknown_loc());
  const auto results = run(b.done({norm->result(0), norm->result(1), norm->result(2)}),
                           {tensor(x, std::vector<float>{kInf, -kNan, 1.0f, 2.0f}),
                            tensor(f, std::vector<float>{1, 1})});
  for (const Tensor& result : {results[0], results[2]}) {
    EXPECT_THAT(values<uint32_t>(result), Each(0x7fc00000u));
  }
  EXPECT_THAT(values<uint32_t>(results[1]), ElementsAre(0x7f800000u, 0x7fc00000u));
}

TEST(Interpreter, MultiplyAddRoundsOnce) {
  GraphBuilder b;
  const Type t = f32({4});
  Value* x = b.arg(t);
  Value* y = b.arg(t);
  Value* z = b.arg(t);
  const Module& m = b.done({b.op(Kind::kMultiplyAdd, {x, y, z}, t)});
  const float above = 1 + 0x1p-12f;  // its square is 1 + 2^-11 + 2^-24
  const auto r =
      values<float>(run(m, {tensor(t, std::vector<float>{above, 1e-30f, kInf, kSubnormal}),
                            tensor(t, std::vector<float>{above, -1e-30f, 0, 1e30f}),
                            tensor(t, std::vector<float>{-1 - 0x1p-11f, -0.0f, 1, -0.0f})})[0]);
  EXPECT_EQ(r[0], 0x1p-24f);
  EXPECT_EQ(std::bit_cast<uint32_t>(r[1]), 0x80000000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(r[2]), 0x7fc00000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(r[3]), 0u);
}

TEST(Interpreter, MaximumOrdersZerosAndKeepsNan) {
  const auto r = binary(Kind::kMaximum, {-0.0f, 0.0f, kNan, 1.0f}, {0.0f, -0.0f, 1.0f, kNan});
  EXPECT_FALSE(std::signbit(r[0]));
  EXPECT_FALSE(std::signbit(r[1]));
  EXPECT_TRUE(std::isnan(r[2]) && std::isnan(r[3]));
  EXPECT_TRUE(std::signbit(binary(Kind::kMinimum, {-0.0f}, {0.0f})[0]));
}

TEST(Interpreter, IntegerDivisionNeverTraps) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  EXPECT_THAT(integers(Kind::kDivide, {7, -7, 5, kMin}, {2, 2, 0, -1}),
              ElementsAre(3, -3, -1, kMin));
  EXPECT_THAT(integers(Kind::kRemainder, {7, -7, 5, kMin}, {2, 2, 0, -1}),
              ElementsAre(1, -1, 5, 0));
}

TEST(Interpreter, WideShiftsGiveZeroOrSign) {
  EXPECT_THAT(integers(Kind::kShiftLeft, {1, 1}, {31, 32}),
              ElementsAre(std::numeric_limits<int32_t>::min(), 0));
  EXPECT_THAT(integers(Kind::kShiftRightArith, {-8, -8, 8}, {1, 40, -1}), ElementsAre(-4, -1, 0));
  EXPECT_THAT(integers(Kind::kShiftRightLogical, {-1, -1}, {28, 32}), ElementsAre(15, 0));
}

TEST(Interpreter, FloatToIntegerSaturates) {
  GraphBuilder b;
  Value* x = b.arg(f32({5}));
  Module& m =
      b.done({b.op(Kind::kConvert, {x}, i32({5})), b.op(Kind::kConvert, {x}, {Elem::kU8, {5}})});
  const auto out = run(m, {tensor<float>(f32({5}), {2.9f, -2.9f, 1e20f, -kInf, kNan})});
  EXPECT_THAT(values<int32_t>(out[0]), ElementsAre(2, -2, std::numeric_limits<int32_t>::max(),
                                                   std::numeric_limits<int32_t>::min(), 0));
  EXPECT_THAT(values<uint8_t>(out[1]), ElementsAre(2, 0, 255, 0, 0));
}

// All 65,536: to f32 and back, and by changes of the sign.
TEST(Interpreter, MovesKeepTheBitsOfBf16) {
  constexpr int64_t kCount = 65536;
  const Type half{Elem::kBf16, {kCount}};
  std::vector<uint16_t> all(kCount), negative(kCount), magnitude(kCount);
  std::vector<uint32_t> wide(kCount);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<uint16_t>(i);
    negative[i] = all[i] ^ 0x8000u;
    magnitude[i] = all[i] & 0x7fffu;
    wide[i] = static_cast<uint32_t>(i) << 16;
  }
  GraphBuilder b;
  Value* x = b.arg(half);
  Value* w = b.op(Kind::kConvert, {x}, f32({kCount}));
  Module& m = b.done({w, b.op(Kind::kConvert, {w}, half), b.op(Kind::kNegate, {x}, half),
                      b.op(Kind::kAbs, {x}, half),
                      b.op(Kind::kReducePrecision, {x}, half, ReducePrecisionAttrs{8, 7})});
  const auto out = run(m, {tensor(half, all)});
  EXPECT_EQ(values<uint32_t>(out[0]), wide);
  EXPECT_EQ(values<uint16_t>(out[1]), all);
  EXPECT_EQ(values<uint16_t>(out[2]), negative);
  EXPECT_EQ(values<uint16_t>(out[3]), magnitude);
  EXPECT_EQ(values<uint16_t>(out[4]), all);
}

TEST(Interpreter, ComparisonsWithNanAreFalseExceptNotEqual) {
  for (int d = 0; d < 6; ++d) {
    GraphBuilder b;
    Value* x = b.arg(f32({1}));
    const auto direction = static_cast<CompareDirection>(d);
    Module& m = b.done({b.op(Kind::kCompare, {x, x}, i1({1}), CompareAttrs{direction})});
    EXPECT_EQ(values<uint8_t>(run(m, {tensor<float>(f32({1}), {kNan})})[0])[0],
              direction == CompareDirection::kNe);
  }
}

TEST(Interpreter, DotFollowsTheColumnLaw) {
  constexpr int64_t kK = 300;  // two full tiles and a short one
  GraphBuilder b;
  Value* x = b.arg(f32({1, kK}));
  Value* w = b.arg(f32({kK, 1}));
  Module& m = b.done({b.op(Kind::kDotGeneral, {x, w}, f32({1, 1}), DotAttrs{{}, {}, {1}, {0}})});
  std::vector<float> xs, ws;
  std::vector<uint16_t> xb, wb;
  uint32_t seed = 1;
  for (int64_t i = 0; i < kK; ++i) {
    const auto next = [&seed] {
      seed = seed * 1664525u + 1013904223u;
      return static_cast<float>(static_cast<int32_t>(seed)) * 1e-9f;
    };
    xs.push_back(next());
    ws.push_back(next());
    xb.push_back(spec::bf16_from_f32(xs.back()));
    wb.push_back(spec::bf16_from_f32(ws.back()));
  }
  const spec::MxuShape mxu;
  uint32_t want = 0;
  for (size_t tile = 0; tile < kK; tile += mxu.rows) {
    const size_t k = std::min<size_t>(mxu.rows, kK - tile);
    want = spec::mxu_column_bits(mxu, wb.data() + tile, xb.data() + tile, k, want);
  }
  const auto got = run(m, {tensor(f32({1, kK}), xs), tensor(f32({kK, 1}), ws)});
  EXPECT_EQ(std::bit_cast<uint32_t>(values<float>(got[0])[0]), want);
}

// Operands of the default precision are rounded to bf16, as a matrix unit does.
TEST(Interpreter, ConvolutionsRoundTheirOperands) {
  const ConvAttrs exact = {.window_stride = {1},
                           .pad_low = {0},
                           .pad_high = {0},
                           .lhs_dilation = {1},
                           .rhs_dilation = {1},
                           .window_reversal = {false},
                           .input_batch = 0,
                           .input_feature = 2,
                           .input_spatial = {1},
                           .kernel_input_feature = 1,
                           .kernel_output_feature = 2,
                           .kernel_spatial = {0},
                           .output_batch = 0,
                           .output_feature = 2,
                           .output_spatial = {1},
                           .lhs_precision = Precision::kHighest,
                           .rhs_precision = Precision::kHighest};
  ConvAttrs rounded = exact;
  rounded.lhs_precision = rounded.rhs_precision = Precision::kDefault;
  constexpr float kFine = 1.0f + 0x1p-10f;
  for (const auto& [attrs, result] : {std::pair(exact, kFine), std::pair(rounded, 1.0f)}) {
    GraphBuilder b;
    const Type type = f32({1, 1, 1});
    Value* x = b.arg(type);
    Value* w = b.arg(type);
    Module& m = b.done({b.op(Kind::kConvolution, {x, w}, type, attrs)});
    const Tensor fine = tensor<float>(type, {kFine});
    const Tensor one = tensor<float>(type, {1.0f});
    EXPECT_THAT(values<float>(run(m, {fine, one})[0]), ElementsAre(result));
    EXPECT_THAT(values<float>(run(m, {one, fine})[0]), ElementsAre(result));
  }
}

TEST(Interpreter, DotWithBatchAndSeveralContractedDims) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 2, 3, 2}));  // k, batch, m, k
  Value* w = b.arg(f32({2, 2, 2}));     // batch, k, k
  const Module& m =
      b.done({b.op(Kind::kDotGeneral, {x, w}, f32({2, 3}), DotAttrs{{1}, {0}, {0, 3}, {1, 2}})});
  std::vector<float> xs(24), ws(8);
  for (size_t i = 0; i < xs.size(); ++i) {
    xs[i] = static_cast<float>(i);
  }
  for (size_t i = 0; i < ws.size(); ++i) {
    ws[i] = static_cast<float>(i + 1);
  }
  std::vector<float> want;
  for (size_t batch = 0; batch < 2; ++batch) {
    for (size_t row = 0; row < 3; ++row) {
      float sum = 0;
      for (size_t k0 = 0; k0 < 2; ++k0) {
        for (size_t k1 = 0; k1 < 2; ++k1) {
          sum += xs[((k0 * 2 + batch) * 3 + row) * 2 + k1] * ws[(batch * 2 + k0) * 2 + k1];
        }
      }
      want.push_back(sum);
    }
  }
  EXPECT_EQ(values<float>(run(m, {tensor(f32({2, 2, 3, 2}), xs), tensor(f32({2, 2, 2}), ws)})[0]),
            want);
}

TEST(Interpreter, ReducesAnyDimsAndEmptyOnes) {
  GraphBuilder b;
  Value* x = b.arg(f32({2, 3, 2}));
  Value* none = b.arg(f32({0, 2}));
  Value* init = b.constant(f32({}), 10);
  Module& m = b.done({b.reduce(x, init, {0, 2}, f32({3}), Kind::kAdd),
                      b.reduce(none, init, {0}, f32({2}), Kind::kAdd)});
  std::vector<float> xs(12);
  for (size_t i = 0; i < xs.size(); ++i) {
    xs[i] = static_cast<float>(i);
  }
  const auto out = run(m, {tensor(f32({2, 3, 2}), xs), make_tensor(f32({0, 2}))});
  EXPECT_THAT(values<float>(out[0]),
              ElementsAre(0 + 1 + 6 + 7 + 10, 2 + 3 + 8 + 9 + 10, 4 + 5 + 10 + 11 + 10));
  EXPECT_THAT(values<float>(out[1]), ElementsAre(10, 10));
}

TEST(Interpreter, LoopsUntilTheConditionFails) {
  GraphBuilder b;
  Value* x = b.arg(i32({}));
  Op* loop = b.region().append(Kind::kWhile, {x}, {i32({})}, NoAttrs{}, unknown_loc());
  Region* cond = loop->add_region();
  Value* c = cond->add_arg(i32({}));
  Value* limit = cond->append(Kind::kConstant, {}, {i32({})},
                              ConstantAttrs{make_splat_int(i32({}), 100)}, unknown_loc())
                     ->result();
  Value* go = cond->append(Kind::kCompare, {c, limit}, {i1({})},
                           CompareAttrs{CompareDirection::kLt}, unknown_loc())
                  ->result();
  cond->append(Kind::kReturn, {go}, {}, NoAttrs{}, unknown_loc());
  Region* body = loop->add_region();
  Value* v = body->add_arg(i32({}));
  Value* twice = body->append(Kind::kAdd, {v, v}, {i32({})}, NoAttrs{}, unknown_loc())->result();
  body->append(Kind::kReturn, {twice}, {}, NoAttrs{}, unknown_loc());
  const auto out = run(b.done({loop->result()}), {tensor<int32_t>(i32({}), {3})});
  EXPECT_EQ(values<int32_t>(out[0])[0], 192);
}

TEST(Interpreter, SumsOverGroupsOfCores) {
  GraphBuilder b(4);
  Value* x = b.arg(f32({1}));
  Module& m = b.done({b.with_body(
      b.op(Kind::kAllReduce, {x}, f32({1}), CollectiveAttrs{{{0, 2}, {1, 3}}}), Kind::kAdd)});
  verify(m);
  std::vector<std::vector<Tensor>> args;
  for (const float v : {1.0f, 10.0f, 100.0f, 1000.0f}) {
    args.push_back({tensor<float>(f32({1}), {v})});
  }
  const auto out = interpret(m, args);
  EXPECT_EQ(values<float>(out[0][0])[0], 101);
  EXPECT_EQ(values<float>(out[3][0])[0], 1010);
}

TEST(Interpreter, RefusesWrongArguments) {
  GraphBuilder b;
  Value* x = b.arg(f32({2}));
  Module& m = b.done({x});
  EXPECT_THROW(interpret(m, {{}}), Error);
  EXPECT_THROW(interpret(m, {{make_tensor(f32({3}))}}), Error);
  EXPECT_THROW(interpret(m, {}), Error);
}

TEST(JoinResults, ReportsCopiesThatDiffer) {
  GraphBuilder b(2);
  Value* x = b.arg(f32({}));
  Module& m = b.done({x});
  const std::vector<std::vector<Tensor>> same = {{tensor<float>(f32({}), {1})},
                                                 {tensor<float>(f32({}), {1})}};
  EXPECT_EQ(values<float>(join_results(m, same)[0])[0], 1);
  const std::vector<std::vector<Tensor>> other = {{tensor<float>(f32({}), {1})},
                                                  {tensor<float>(f32({}), {2})}};
  EXPECT_THROW(join_results(m, other), Error);
}

TEST(SplitArguments, GivesEachCoreItsPiece) {
  GraphBuilder b(4);
  Value* x = b.arg(i32({2, 1}));
  Module& m = b.done({x});
  m.mesh = {"m", {{"a", 2}, {"b", 2}}, {}};
  const Sharding s{{{0}, {1}}};
  m.main->args[0].sharding = m.main->results[0].sharding = s;
  m.main->args[0].global = m.main->results[0].global = i32({4, 2});
  verify(m);
  const Tensor global = tensor<int32_t>(i32({4, 2}), {0, 1, 2, 3, 4, 5, 6, 7});
  const auto pieces = split_arguments(m, {global});
  EXPECT_THAT(values<int32_t>(pieces[3][0]), ElementsAre(5, 7));
  EXPECT_EQ(join_results(m, pieces)[0].data, global.data);
}

}  // namespace
}  // namespace tpu::compiler
