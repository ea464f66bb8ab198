// Pass `split_double`: pairs of f32 compute what f64 says, to the 48 bits that they hold, and
// nothing of type f64 is left. tests/e2e/double_cases.py has programs, against JAX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "arith/flush_mode.hpp"
#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/double/split_double.hpp"
#include "tensors.hpp"

namespace tpu::compiler {
namespace {

using test::GraphBuilder;
using test::i1;
using test::tensor;
using ::testing::HasSubstr;

using Doubles = std::vector<double>;
using Make = std::function<Value*(GraphBuilder&, const std::vector<Value*>&)>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Type f64(Dims dims) { return {Elem::kF64, std::move(dims)}; }

void expect_no_doubles(const Module& m) {
  walk(m.main->body, [](const Op& op) {
    for (const auto& r : op.results) {
      EXPECT_NE(r->type.elem, Elem::kF64) << print(op);
    }
  });
}

std::vector<Tensor> run(Module& m, const std::vector<Tensor>& args) {
  verify(m);
  EXPECT_TRUE(split_double(m));
  m.number_ops();
  verify(m);
  expect_no_doubles(m);
  return interpret(m, {args}, {})[0];
}

Tensor bits_of(const Doubles& x) {
  return tensor(Type{Elem::kU64, {static_cast<int64_t>(x.size())}}, x);
}

Tensor computed(const std::vector<Doubles>& args, const Make& make) {
  GraphBuilder b;
  std::vector<Value*> values;
  std::vector<Tensor> in;
  for (const Doubles& arg : args) {
    values.push_back(b.arg(f64({static_cast<int64_t>(arg.size())})));
    in.push_back(bits_of(arg));
  }
  return run(b.done({make(b, values)}), in)[0];
}

Doubles computed(Kind kind, const std::vector<Doubles>& args) {
  return test::values<double>(computed(args, [&](GraphBuilder& b, const std::vector<Value*>& x) {
    return b.op(kind, x, x[0]->type);
  }));
}

// Of 48 bits, so that pairs hold them.
Doubles random_numbers(size_t count, uint32_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, scale);
  Doubles out;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint64_t>(normal(random));
    out.push_back(std::bit_cast<double>(bits & ~uint64_t{0x3f}));
  }
  return out;
}

double largest_error(const Doubles& made, const Doubles& wanted) {
  double worst = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    const double gap = made[i] == wanted[i] ? 0 : std::abs(made[i] - wanted[i]);
    worst = std::max(worst, std::isnan(gap) ? kInf : gap / std::abs(wanted[i]));
  }
  return worst;
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
  expect_equal(test::values<double>(computed(
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
  expect_equal(
      test::values<double>(computed({x}, [](GraphBuilder&, const auto& in) { return in[0]; })), x);
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
  const Doubles x = random_numbers(2000, 4), y = random_numbers(2000, 5, 100);
  const auto expect = [&](Kind kind, const std::function<double(double, double)>& f, double bound) {
    Doubles wanted;
    for (size_t i = 0; i < x.size(); ++i) {
      wanted.push_back(f(x[i], y[i]));
    }
    EXPECT_LE(largest_error(computed(kind, {x, y}), wanted), bound) << kind_name(kind);
  };
  expect(
      Kind::kAdd, [](double a, double b) { return a + b; }, 0x1p-46);
  expect(
      Kind::kSubtract, [](double a, double b) { return a - b; }, 0x1p-46);
  expect(
      Kind::kMultiply, [](double a, double b) { return a * b; }, 0x1p-46);
  expect(
      Kind::kDivide, [](double a, double b) { return a / b; }, 0x1p-45);
  expect(
      Kind::kMaximum, [](double a, double b) { return std::max(a, b); }, 0);
  expect(
      Kind::kMinimum, [](double a, double b) { return std::min(a, b); }, 0);
  expect(
      Kind::kAtan2, [](double a, double b) { return std::atan2(a, b); }, 0x1p-43);
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

TEST(SplitDouble, FunctionsHaveTheAccuracyOfPairs) {
  const auto expect = [](Kind kind, const Doubles& x, const std::function<double(double)>& f,
                         double bound) {
    Doubles wanted;
    for (const double v : x) {
      wanted.push_back(f(v));
    }
    EXPECT_LE(largest_error(computed(kind, {x}), wanted), bound) << kind_name(kind);
  };
  const Doubles x = random_numbers(1000, 6, 3);
  Doubles positive = x, small = random_numbers(1000, 7, 1e-3);
  for (double& v : positive) {
    v = std::abs(v);
  }
  expect(
      Kind::kSqrt, positive, [](double v) { return std::sqrt(v); }, 0x1p-45);
  expect(
      Kind::kRsqrt, positive, [](double v) { return 1 / std::sqrt(v); }, 0x1p-44);
  expect(
      Kind::kCbrt, x, [](double v) { return std::cbrt(v); }, 0x1p-44);
  expect(
      Kind::kLog, positive, [](double v) { return std::log(v); }, 0x1p-42);
  for (const Doubles& v : {x, small}) {
    expect(
        Kind::kExp, v, [](double a) { return std::exp(a); }, 0x1p-43);
    expect(
        Kind::kExpm1, v, [](double a) { return std::expm1(a); }, 0x1p-42);
    expect(
        Kind::kTanh, v, [](double a) { return std::tanh(a); }, 0x1p-41);
    expect(
        Kind::kLogistic, v, [](double a) { return 1 / (1 + std::exp(-a)); }, 0x1p-42);
    expect(
        Kind::kSine, v, [](double a) { return std::sin(a); }, 0x1p-42);
    expect(
        Kind::kCosine, v, [](double a) { return std::cos(a); }, 0x1p-42);
    expect(
        Kind::kTan, v, [](double a) { return std::tan(a); }, 0x1p-41);
  }
  expect(
      Kind::kLog1p, small, [](double v) { return std::log1p(v); }, 0x1p-43);
  expect(
      Kind::kLog1p, positive, [](double v) { return std::log1p(v); }, 0x1p-43);
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
  const auto out = run(b.done({wide, b.op(Kind::kConvert, {wide}, type)}), {tensor(type, whole)});
  Doubles wanted;
  for (const int64_t v : whole) {
    wanted.push_back(static_cast<double>(v));
  }
  EXPECT_LE(largest_error(test::values<double>(out[0]), wanted), 0x1p-48);
  EXPECT_EQ(test::values<int64_t>(out[1]), whole);
}

TEST(SplitDouble, FloatsConvertToIntegersWithSaturation) {
  const Doubles x = {1.9, -1.9, 2147483647.5, -2147483649.0, 1e20, -1e20, kNan, kInf, 255.5, -0.5};
  const auto to = [&](Elem elem) {
    return computed({x}, [&](GraphBuilder& b, const auto& in) {
      return b.op(Kind::kConvert, {in[0]}, {elem, in[0]->type.dims});
    });
  };
  EXPECT_EQ(test::values<int32_t>(to(Elem::kI32)),
            (std::vector<int32_t>{1, -1, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0, INT32_MAX,
                                  255, 0}));
  EXPECT_EQ(test::values<uint8_t>(to(Elem::kU8)),
            (std::vector<uint8_t>{1, 0, 255, 0, 255, 0, 0, 255, 255, 0}));
  EXPECT_EQ(test::values<uint64_t>(to(Elem::kU64)),
            (std::vector<uint64_t>{1, 0, 2147483647, 0, UINT64_MAX, 0, 0, UINT64_MAX, 255, 0}));
}

TEST(SplitDouble, SumsCarryPairs) {
  const Doubles x = random_numbers(100, 8);
  const Doubles sum = test::values<double>(computed({x}, [](GraphBuilder& b, const auto& in) {
    return b.reduce(in[0], b.constant(f64({}), 0), {0}, f64({}), Kind::kAdd);
  }));
  double wanted = 0;
  for (const double v : x) {
    wanted += v;
  }
  EXPECT_NEAR(sum[0], wanted, 1e-12);
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
