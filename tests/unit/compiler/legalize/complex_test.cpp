// Pass `split_complex`: the graph computes what complex arithmetic says, and nothing complex is
// left. tests/e2e/complex_cases.py has the functions, against JAX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <limits>

#include "complex_numbers.hpp"
#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/complex/fourier_tables.hpp"
#include "legalize/complex/split_complex.hpp"

namespace tpu::compiler {
namespace {

using test::c64;
using test::Exact;
using test::expect_near;
using test::f32;
using test::GraphBuilder;
using test::Number;
using test::Numbers;
using test::random_numbers;
using test::tensor;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_no_complex_values(const Module& m) {
  walk(m.main->body, [](const Op& op) {
    for (const auto& r : op.results) {
      EXPECT_FALSE(is_complex(r->type.elem)) << print(op);
    }
  });
}

std::vector<Tensor> run(Module& m, const std::vector<Numbers>& args) {
  verify(m);
  EXPECT_TRUE(split_complex(m));
  m.number_ops();
  verify(m);
  expect_no_complex_values(m);
  std::vector<Tensor> in;
  for (size_t i = 0; i < args.size(); ++i) {
    in.push_back(tensor(m.main->body.args[i]->type, args[i]));
  }
  EvalOptions options;
  options.dots = DotMode::kDouble;
  return interpret(m, {in}, options)[0];
}

using Make = std::function<Value*(GraphBuilder&, const std::vector<Value*>&)>;

Numbers computed(const std::vector<Numbers>& args, const Make& make) {
  GraphBuilder b;
  std::vector<Value*> values;
  for (const Numbers& arg : args) {
    values.push_back(b.arg(c64({static_cast<int64_t>(arg.size())})));
  }
  return test::values<Number>(run(b.done({make(b, values)}), args)[0]);
}

Numbers computed(Kind kind, const std::vector<Numbers>& args) {
  return computed(args, [&](GraphBuilder& b, const std::vector<Value*>& x) {
    return b.op(kind, x, x[0]->type);
  });
}

void expect_part(float made, float wanted) {
  if (std::isnan(wanted)) {
    EXPECT_TRUE(std::isnan(made)) << made;
  } else {
    EXPECT_EQ(made, wanted);
    EXPECT_EQ(std::signbit(made), std::signbit(wanted)) << made;
  }
}

TEST(SplitComplex, ArithmeticIsThatOfPairs) {
  const Numbers x = random_numbers(500, 1), y = random_numbers(500, 2);
  const auto expect = [&](Kind kind, const std::function<Exact(Exact, Exact)>& f) {
    std::vector<Exact> wanted;
    for (size_t i = 0; i < x.size(); ++i) {
      wanted.push_back(f(x[i], y[i]));
    }
    expect_near(computed(kind, {x, y}), wanted, 2e-7);
  };
  expect(Kind::kAdd, [](Exact a, Exact b) { return a + b; });
  expect(Kind::kSubtract, [](Exact a, Exact b) { return a - b; });
  expect(Kind::kMultiply, [](Exact a, Exact b) { return a * b; });
  expect(Kind::kDivide, [](Exact a, Exact b) { return a / b; });
}

TEST(SplitComplex, FunctionsAreThoseOfTheStandardLibrary) {
  Numbers x = random_numbers(500, 3);
  for (size_t i = 0; i < x.size(); i += 2) {
    x[i] *= 6.0F;
  }
  const auto expect = [&](Kind kind, const std::function<Exact(Exact)>& f) {
    std::vector<Exact> wanted;
    for (const Number& v : x) {
      wanted.push_back(f(v));
    }
    expect_near(computed(kind, {x}), wanted, 1e-6);
  };
  expect(Kind::kExp, [](Exact a) { return std::exp(a); });
  expect(Kind::kExpm1, [](Exact a) { return std::exp(a) - 1.0; });
  expect(Kind::kLog, [](Exact a) { return std::log(a); });
  expect(Kind::kLog1p, [](Exact a) { return std::log(1.0 + a); });
  expect(Kind::kSqrt, [](Exact a) { return std::sqrt(a); });
  expect(Kind::kRsqrt, [](Exact a) { return 1.0 / std::sqrt(a); });
  expect(Kind::kCbrt, [](Exact a) { return std::pow(a, 1.0 / 3); });
  expect(Kind::kSine, [](Exact a) { return std::sin(a); });
  expect(Kind::kCosine, [](Exact a) { return std::cos(a); });
  expect(Kind::kTan, [](Exact a) { return std::tan(a); });
  expect(Kind::kTanh, [](Exact a) { return std::tanh(a); });
  expect(Kind::kLogistic, [](Exact a) { return 1.0 / (1.0 + std::exp(-a)); });
  expect(Kind::kSign, [](Exact a) { return a / std::abs(a); });
}

TEST(SplitComplex, PowersOfZeroAndOne) {
  const Numbers bases = {{0, 0}, {0, 0}, {1, 0}, {1, 0}, {0, 1}, {-1, 0}};
  const Numbers exponents = {{2, 0}, {0, 0}, {2, 0}, {-3, 0}, {2, 0}, {3, 0}};
  const std::vector<Exact> wanted = {0, 1, 1, 1, -1, -1};
  const Numbers made = computed(Kind::kPower, {bases, exponents});
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(made[i].real(), wanted[i].real(), 1e-6) << bases[i] << " to " << exponents[i];
    EXPECT_NEAR(made[i].imag(), 0, 1e-6) << bases[i] << " to " << exponents[i];
  }
}

// The logarithm of a number near the unit circle keeps its digits.
TEST(SplitComplex, LogarithmsDoNotCancelNearOne) {
  Numbers x;
  for (int i = 0; i < 64; ++i) {
    const Exact u = fourier::root_of_unity(i, 64) * (1 + 1e-4 * (i % 5 - 2));
    x.emplace_back(static_cast<float>(u.real()), static_cast<float>(u.imag()));
  }
  const Numbers made = computed(Kind::kLog, {x});
  for (size_t i = 0; i < x.size(); ++i) {
    const double re = x[i].real(), im = x[i].imag();
    const double wanted = 0.5 * std::log1p((re * re - 1) + im * im);
    EXPECT_NEAR(made[i].real(), wanted, 3e-7 * std::fabs(wanted) + 1e-14) << x[i];
  }
}

TEST(SplitComplex, QuotientsStayInRangeAndKnowZeroAndInfinity) {
  const float huge = 3e38F, tiny = 1e-30F;
  const Numbers x = {{huge, huge}, {tiny, tiny}, {1e38F, 0}, {1, 0},   {1, 2},
                     {0, 0},       {kInf, 0},    {1, 1},     {kNan, 1}};
  const Numbers y = {{huge, huge}, {tiny, -tiny}, {0, 1e30F}, {0, 0}, {-0.0F, 0},
                     {0, 0},       {1, 1},        {kInf, 1},  {1, 1}};
  const Numbers wanted = {{1, 0},       {0, 1},        {0, -1e8F}, {kInf, kNan}, {-kInf, -kInf},
                          {kNan, kNan}, {kInf, -kInf}, {0, -0.0F}, {kNan, kNan}};
  const Numbers made = computed(Kind::kDivide, {x, y});
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    if (i == 7) {  // zeros of either sign
      EXPECT_EQ(made[i], Number(0, 0));
      continue;
    }
    if (std::isfinite(wanted[i].real())) {
      EXPECT_NEAR(made[i].real(), wanted[i].real(), 1e-7 * std::abs(wanted[i]));
      EXPECT_NEAR(made[i].imag(), wanted[i].imag(), 1e-7 * std::abs(wanted[i]));
      continue;
    }
    expect_part(made[i].real(), wanted[i].real());
    expect_part(made[i].imag(), wanted[i].imag());
  }
}

TEST(SplitComplex, BranchesOfTheRootFollowTheSignOfZero) {
  const Numbers x = {{-4, 0}, {-4, -0.0F}, {0, 0}, {0, -0.0F}, {-kInf, 1}, {1, -kInf}, {kInf, -1}};
  const Numbers wanted = {{0, 2},    {0, -2},       {0, 0},       {0, -0.0F},
                          {0, kInf}, {kInf, -kInf}, {kInf, -0.0F}};
  const Numbers made = computed(Kind::kSqrt, {x});
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(i);
    expect_part(made[i].real(), wanted[i].real());
    expect_part(made[i].imag(), wanted[i].imag());
  }
}

// What the host sees stays; donations and shardings go with it.
TEST(SplitComplex, ArgumentsAndResultsLieAsPairs) {
  GraphBuilder b(2);
  Module& m = b.module();
  m.mesh.axes = {{"d", 2}};
  m.global = true;
  Value* x = b.arg(c64({4, 3}));
  m.main->args[0].alias_result = 0;
  ShardingAttrs wanted;
  wanted.sharding.dim_axes = {{0}, {}};
  wanted.open = {false, true};
  m.main->args[0].wanted = wanted;
  b.done({b.op(Kind::kNegate, {x}, x->type), x});
  verify(m);
  EXPECT_TRUE(split_complex(m));
  m.number_ops();
  verify(m);
  const ArgInfo& arg = m.main->args[0];
  EXPECT_EQ(arg.global, f32({4, 3, 2}));
  EXPECT_TRUE(arg.is_complex && m.main->results[0].is_complex && m.main->results[1].is_complex);
  EXPECT_EQ(arg.wanted->sharding.dim_axes.size(), 3U);
  EXPECT_EQ(arg.wanted->open, (std::vector<bool>{false, true, false}));
  // An argument that is a result is not taken apart for it.
  EXPECT_EQ(m.main->body.terminator()->operands[1], m.main->body.args[0].get());
}

TEST(SplitComplex, LoopsCarryBothParts) {
  GraphBuilder b;
  Value* x = b.arg(c64({}));
  Op* loop = b.region().append(Kind::kWhile, {x}, {x->type}, NoAttrs{}, unknown_loc());
  Region* condition = loop->add_region();
  Value* at = condition->add_arg(x->type);
  const auto make = [](Region* r, Kind kind, std::vector<Value*> in, const Type& type,
                       Attrs attrs = NoAttrs{}) {
    return r->append(kind, std::move(in), {type}, std::move(attrs), unknown_loc())->result();
  };
  Value* size = make(condition, Kind::kAbs, {at}, f32({}));
  Value* bound =
      make(condition, Kind::kConstant, {}, f32({}), ConstantAttrs{make_splat(f32({}), 9)});
  Value* less = make(condition, Kind::kCompare, {size, bound}, {Elem::kI1, {}},
                     CompareAttrs{CompareDirection::kLt, CompareType::kFloat});
  condition->append(Kind::kReturn, {less}, {}, NoAttrs{}, unknown_loc());
  Region* body = loop->add_region();
  Value* v = body->add_arg(x->type);
  Value* square = make(body, Kind::kMultiply, {v, v}, x->type);
  body->append(Kind::kReturn, {square}, {}, NoAttrs{}, unknown_loc());
  const auto out = run(b.done({loop->result()}), {{Number(1, 1)}});
  EXPECT_EQ(test::values<Number>(out[0]), Numbers{Number(16, 0)});
}

TEST(SplitComplex, RefusesWhatHasNoMeaning) {
  GraphBuilder b;
  Value* x = b.arg(c64({3}));
  Module& m = b.done({b.op(Kind::kRemainder, {x, x}, x->type)});
  try {
    split_complex(m);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("test.py:1"));
    EXPECT_THAT(e.what(),
                HasSubstr("stablehlo.remainder: not supported on complex64; use the real"));
  }
}

}  // namespace
}  // namespace tpu::compiler
