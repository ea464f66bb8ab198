// Pass `split_double`: pairs of f32 compute what f64 says, to the 48 bits that they hold, and
// nothing of type f64 is left. tests/e2e/double_cases.py has programs, against JAX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "double_numbers.hpp"
#include "passes/dce.hpp"

namespace tpu::compiler {
namespace {

using ::testing::HasSubstr;

using namespace test;  // of double_numbers.hpp
using Make = std::function<Value*(GraphBuilder&, const std::vector<Value*>&)>;

Tensor computed(const std::vector<Doubles>& args, const Make& make) {
  GraphBuilder b;
  std::vector<Value*> values;
  std::vector<Tensor> in;
  for (const Doubles& arg : args) {
    values.push_back(b.arg(f64({static_cast<int64_t>(arg.size())})));
    in.push_back(bits_of(arg));
  }
  return run_doubles(b.done({make(b, values)}), in)[0];
}

Doubles computed(Kind kind, const std::vector<Doubles>& args) {
  return values<double>(computed(args, [&](GraphBuilder& b, const std::vector<Value*>& x) {
    return b.op(kind, x, x[0]->type);
  }));
}

void expect_equal(const Doubles& made, const Doubles& wanted) {
  ASSERT_EQ(made.size(), wanted.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(made[i])) << i << ": " << made[i];
    } else {
      EXPECT_EQ(made[i], wanted[i]) << i;
      EXPECT_EQ(std::signbit(made[i]), std::signbit(wanted[i])) << i;
    }
  }
}

TEST(SplitDouble, BitsOf48ComeBackAsTheyWere) {
  Doubles x = random_numbers(2000, 1);
  const Doubles large = random_numbers(500, 2, 1e30), small = random_numbers(500, 3, 1e-20);
  x.insert(x.end(), large.begin(), large.end());
  x.insert(x.end(), small.begin(), small.end());
  for (const double v : {0.0, -0.0, 1.0, -1.0, 1 + 0x1p-47, 1 - 0x1p-48, -(1 - 0x1p-40), 0x1p127,
                         0x1p-126, kInf, -kInf, kNan}) {
    x.push_back(v);
  }
  expect_equal(values<double>(computed(
                   {x},
                   [](GraphBuilder& b, const auto& in) {
                     return b.op(Kind::kSelect,
                                 {b.constant(i1({}), 1),
                                  b.op(Kind::kNegate, {b.op(Kind::kNegate, {in[0]}, in[0]->type)},
                                       in[0]->type),
                                  in[0]},
                                 in[0]->type);
                   })),
               x);
}

TEST(SplitDouble, ArgumentsThatAreResultsKeepAllBits) {
  const Doubles x = {1e300, 1e-300, 0.1, std::numeric_limits<double>::denorm_min()};
  expect_equal(values<double>(computed({x}, [](GraphBuilder&, const auto& in) { return in[0]; })),
               x);
}

TEST(SplitDouble, NumbersBeyondF32OverflowOrVanish) {
  const Doubles x = {1e39,
                     -1e300,
                     1e-39,
                     -1e-300,
                     0x1p-126 * (1 - 0x1p-30),
                     static_cast<double>(std::numeric_limits<float>::max()) * (1 + 0x1p-20)};
  expect_equal(computed(Kind::kNegate, {x}), {-kInf, kInf, -0.0, 0.0, -0x1p-126, -kInf});
}

TEST(SplitDouble, ArithmeticHas46Bits) {
  const Doubles x = random_numbers(10000, 4), y = random_numbers(10000, 5, 100);
  const auto expect = [&](Kind kind, const std::function<double(double, double)>& f, double bound) {
    Doubles wanted;
    for (size_t i = 0; i < x.size(); ++i) {
      wanted.push_back(f(x[i], y[i]));
    }
    EXPECT_LE(largest_error(computed(kind, {x, y}), wanted), bound) << kind_name(kind);
  };
  expect(
      Kind::kAdd, [](double a, double b) { return a + b; }, 0x1p-47);
  expect(
      Kind::kSubtract, [](double a, double b) { return a - b; }, 0x1p-47);
  expect(
      Kind::kMultiply, [](double a, double b) { return a * b; }, 0x1p-46);
  expect(
      Kind::kDivide, [](double a, double b) { return a / b; }, 0x1p-45);
  expect(
      Kind::kMaximum, [](double a, double b) { return std::max(a, b); }, 0);
  expect(
      Kind::kMinimum, [](double a, double b) { return std::min(a, b); }, 0);
  expect(
      Kind::kAtan2, [](double a, double b) { return std::atan2(a, b); }, 0x1p-45);
}

TEST(SplitDouble, SumsThatCancelAreExact) {
  const Doubles x = {1 + 0x1p-40, 3.0, 1e10 + 0x1p-10}, y = {-1, -3 + 0x1p-44, -1e10};
  expect_equal(computed(Kind::kAdd, {x, y}), {0x1p-40, 0x1p-44, 0x1p-10});
}

TEST(SplitDouble, SpecialValuesAreThoseOfIeee) {
  const Doubles all = {0.0, -0.0, 1, -2, kInf, -kInf, kNan, 1 + 0x1p-40};
  Doubles x, y;
  for (const double a : all) {
    for (const double b : all) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const auto expect = [&](Kind kind, const std::function<double(double, double)>& f) {
    SCOPED_TRACE(kind_name(kind));
    Doubles wanted;
    for (size_t i = 0; i < x.size(); ++i) {
      wanted.push_back(f(x[i], y[i]));
    }
    const Doubles made = computed(kind, {x, y});
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(made[i]), std::isnan(wanted[i])) << x[i] << " " << y[i];
      if (!std::isnan(wanted[i])) {
        EXPECT_EQ(std::signbit(made[i]), std::signbit(wanted[i])) << x[i] << " " << y[i];
        EXPECT_TRUE(made[i] == wanted[i] ||
                    std::abs(made[i] - wanted[i]) <= 0x1p-40 * std::abs(wanted[i]))
            << x[i] << " " << y[i] << ": " << made[i];
      }
    }
  };
  expect(Kind::kAdd, [](double a, double b) { return a + b; });
  expect(Kind::kSubtract, [](double a, double b) { return a - b; });
  expect(Kind::kMultiply, [](double a, double b) { return a * b; });
  expect(Kind::kDivide, [](double a, double b) { return a / b; });
  expect(Kind::kRemainder, [](double a, double b) { return std::fmod(a, b); });
  expect(Kind::kPower, [](double a, double b) { return std::pow(a, b); });
  expect(Kind::kAtan2, [](double a, double b) { return std::atan2(a, b); });
}

struct Function {
  Kind kind;
  double (*wanted)(double);
  Doubles scales;  // of random numbers, of both signs but for functions of positive ones
  double bound;
  bool positive = false;
};

// The bounds are those of docs/numerics.md.
TEST(SplitDouble, FunctionsHaveTheAccuracyOfPairs) {
  const Doubles usual = {1e-6, 1e-3, 0.1, 1, 3, 12}, any = {1e-15, 1e-3, 1, 1e3, 1e15};
  const std::vector<Function> functions = {
      {Kind::kSqrt, std::sqrt, any, 0x1p-46, true},
      {Kind::kRsqrt, [](double v) { return 1 / std::sqrt(v); }, any, 0x1p-45, true},
      {Kind::kCbrt, std::cbrt, any, 0x1p-46},
      {Kind::kExp, std::exp, usual, 0x1p-47},
      {Kind::kExpm1, std::expm1, usual, 0x1p-45},
      {Kind::kLog, std::log, any, 0x1p-45, true},
      {Kind::kLog1p, std::log1p, any, 0x1p-45, true},
      {Kind::kTanh, std::tanh, usual, 0x1p-45},
      {Kind::kLogistic, [](double v) { return 1 / (1 + std::exp(-v)); }, usual, 0x1p-45},
      {Kind::kSine, std::sin, {1e-6, 1e-3, 1, 20, 1e3, 1e5}, 0x1p-47},
      {Kind::kCosine, std::cos, {1e-6, 1e-3, 1, 20, 1e3, 1e5}, 0x1p-47},
      {Kind::kTan, std::tan, {1e-6, 1e-3, 1, 20, 1e3, 1e5}, 0x1p-45},
      {Kind::kErf, std::erf, usual, 0x1p-46}};
  for (const Function& f : functions) {
    Doubles x, wanted;
    for (size_t i = 0; i < f.scales.size(); ++i) {
      for (const double v : random_numbers(1000, static_cast<uint32_t>(20 + i), f.scales[i])) {
        x.push_back(f.positive ? std::abs(v) : v);
        wanted.push_back(f.wanted(x.back()));
      }
    }
    EXPECT_LE(largest_error(computed(f.kind, {x}), wanted), f.bound) << kind_name(f.kind);
  }
}

// They all round to -1 in f32.
TEST(SplitDouble, LogPlusOneTellsNumbersNearMinusOneApart) {
  const Doubles out = computed(Kind::kLog1p, {{-1 + 0x1p-30, -1 - 0x1p-30, -1}});
  EXPECT_NEAR(out[0], -30 * std::numbers::ln2, 1e-12);
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], -kInf);
}

TEST(SplitDouble, RoundingsAreExact) {
  const Doubles x = {0.5,
                     -0.5,
                     1.5,
                     2.5,
                     -2.5,
                     0.49999999999999,
                     1e9 + 0.5,
                     1e9 + 1.5,
                     -1e9 - 0.75,
                     1 - 0x1p-30,
                     -1 + 0x1p-30,
                     1 - 0x1p-26,
                     2 - 0x1p-30,
                     0x1p30 + 0x1p-10,
                     0x1p30 - 0x1p-10,
                     0.0,
                     -0.0,
                     kInf,
                     -kInf,
                     kNan,
                     -0.25};
  const auto expect = [&](Kind kind, const std::function<double(double)>& f) {
    SCOPED_TRACE(kind_name(kind));
    Doubles wanted;
    for (const double v : x) {
      wanted.push_back(f(v));
    }
    expect_equal(computed(kind, {x}), wanted);
  };
  expect(Kind::kFloor, [](double v) { return std::floor(v); });
  expect(Kind::kCeil, [](double v) { return std::ceil(v); });
  expect(Kind::kRoundEven, [](double v) { return std::nearbyint(v); });
  expect(Kind::kRoundAfz, [](double v) { return std::round(v); });
}

TEST(SplitDouble, IntegersConvertBothWays) {
  const std::vector<int64_t> whole = {
      0, 1, -1, 123456789012345, -(int64_t{1} << 47) + 1, INT64_MAX, INT64_MIN, 1 << 30};
  GraphBuilder b;
  const Type type{Elem::kI64, {static_cast<int64_t>(whole.size())}};
  Value* x = b.arg(type);
  Value* wide = b.op(Kind::kConvert, {x}, f64(type.dims));
  const auto out =
      run_doubles(b.done({wide, b.op(Kind::kConvert, {wide}, type)}), {tensor(type, whole)});
  Doubles wanted;
  for (const int64_t v : whole) {
    wanted.push_back(static_cast<double>(v));
  }
  EXPECT_LE(largest_error(values<double>(out[0]), wanted), 0x1p-48);
  EXPECT_EQ(values<int64_t>(out[1]), whole);
}

TEST(SplitDouble, FloatsConvertToIntegersWithSaturation) {
  const Doubles x = {1.9,  -1.9, 2147483647.5, -2147483649.0, 1e20,        -1e20,
                     kNan, kInf, 255.5,        -0.5,          1 - 0x1p-30, -1 + 0x1p-30};
  const auto to = [&](Elem elem) {
    return computed({x}, [&](GraphBuilder& b, const auto& in) {
      return b.op(Kind::kConvert, {in[0]}, {elem, in[0]->type.dims});
    });
  };
  EXPECT_EQ(values<int32_t>(to(Elem::kI32)),
            (std::vector<int32_t>{1, -1, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0, INT32_MAX,
                                  255, 0, 0, 0}));
  EXPECT_EQ(values<uint8_t>(to(Elem::kU8)),
            (std::vector<uint8_t>{1, 0, 255, 0, 255, 0, 0, 255, 255, 0, 0, 0}));
  EXPECT_EQ(
      values<uint64_t>(to(Elem::kU64)),
      (std::vector<uint64_t>{1, 0, 2147483647, 0, UINT64_MAX, 0, 0, UINT64_MAX, 255, 0, 0, 0}));
}

TEST(SplitDouble, SumsCarryPairs) {
  const Doubles x = random_numbers(100, 8);
  const Doubles sum = values<double>(computed({x}, [](GraphBuilder& b, const auto& in) {
    return b.reduce(in[0], b.constant(f64({}), 0), {0}, f64({}), Kind::kAdd);
  }));
  double wanted = 0;
  for (const double v : x) {
    wanted += v;
  }
  EXPECT_NEAR(sum[0], wanted, 1e-12);
}

// Of an argument that becomes f32 there is no low part, which takes products.
TEST(SplitDouble, ScalarsThatBecomeF32TakeOneRounding) {
  constexpr size_t kMostOps = 30;
  GraphBuilder b;
  Value* x = b.arg(f64({}));
  Module& m = b.done({b.op(Kind::kConvert, {x}, {Elem::kF32, {}})});
  EXPECT_TRUE(split_double(m));
  remove_dead_ops(m);
  size_t ops = 0;
  walk(m.main->body, [&](const Op& op) {
    ops += op.kind == Kind::kConstant ? 0 : 1;
    EXPECT_NE(op.kind, Kind::kMultiply) << print(op);
  });
  EXPECT_LE(ops, kMostOps);
  for (const double v : {0.1, -1e300, 1e-300, 0x1p-126 * (1 - 0x1p-26), 1 + 0x1p-24, -0.0}) {
    const Tensor made = interpret(m, {{bits_of({v}, {})}}, {})[0][0];
    const auto wanted =
        std::abs(v) < 1e-45 ? std::copysign(0.0F, static_cast<float>(v)) : static_cast<float>(v);
    EXPECT_EQ(std::bit_cast<uint32_t>(values<float>(made)[0]), std::bit_cast<uint32_t>(wanted))
        << v;
  }
}

TEST(SplitDouble, F32BecomesAnF64ResultWithoutALowPart) {
  constexpr size_t kMostOps = 20;
  GraphBuilder b;
  Value* x = b.arg({Elem::kF32, {}});
  Module& m = b.done({b.op(Kind::kConvert, {x}, f64({}))});
  EXPECT_TRUE(split_double(m));
  remove_dead_ops(m);
  size_t ops = 0;
  walk(m.main->body, [&](const Op& op) { ops += op.kind == Kind::kConstant ? 0 : 1; });
  EXPECT_LE(ops, kMostOps);
  for (const float v : {0.1F, -3e38F, 0x1p-126F, -0.0F, std::numeric_limits<float>::infinity()}) {
    const Tensor made =
        interpret(m, {{tensor(Type{Elem::kF32, {}}, std::vector<float>{v})}}, {})[0][0];
    EXPECT_EQ(values<double>(made)[0], static_cast<double>(v));
    EXPECT_EQ(std::signbit(values<double>(made)[0]), std::signbit(v));
  }
}

TEST(SplitDouble, WhatHasNoPairsIsRefusedWithItsLine) {
  GraphBuilder b;
  Value* x = b.arg(f64({4}));
  Module& m = b.done({b.op(Kind::kReducePrecision, {x}, x->type, ReducePrecisionAttrs{11, 30})});
  try {
    split_double(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("at most 23 bits of mantissa"));
    EXPECT_THAT(e.what(), HasSubstr("test.py:1"));
  }
}

}  // namespace
}  // namespace tpu::compiler
