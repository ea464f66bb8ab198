// The origin of what is not finite, in graphs that the interpreter runs.
#include "instrument/finite_watch.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"

namespace tpu::compiler {
namespace {

using test::f32;
using test::GraphBuilder;
using test::i1;
using test::i32;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor tensor(const std::vector<float>& values) {
  Tensor t = make_tensor(f32({static_cast<int64_t>(values.size())}));
  std::memcpy(t.data.data(), values.data(), t.data.size());
  return t;
}

// Runs the graph with a watch. The origin of each result as "op line", or "finite".
std::vector<std::string> origins(Module& m, const std::vector<Tensor>& args) {
  const size_t results = m.main->results.size();
  const FiniteWatch watch = watch_finite(m);
  m.number_ops();
  verify(m);
  const Tensor told = interpret(m, {args})[0].back();
  std::vector<int32_t> rows(watch.values.size());
  EXPECT_EQ(told.data.size(), rows.size() * sizeof(int32_t));
  std::memcpy(rows.data(), told.data.data(), told.data.size());
  std::vector<std::string> texts;
  for (size_t result = 0; result < results; ++result) {
    const auto found = origin_of(watch, rows, result);
    if (!found) {
      texts.emplace_back("finite");
      continue;
    }
    const WatchedValue& value = watch.values[*found];
    texts.push_back(value.source == WatchedValue::Source::kArgument
                        ? "argument " + std::to_string(value.argument)
                        : value.op + " " + value.where);
  }
  return texts;
}

std::string origin(Module& m, const std::vector<Tensor>& args) { return origins(m, args)[0]; }

class Watch : public ::testing::Test {
 protected:
  Value* sum(Value* x) {
    return b_.reduce(x, b_.constant(f32({}), 0), {0}, f32({}), Kind::kAdd);  // lines: 4 a call
  }
  Value* like(Value* x, double value) { return b_.constant(x->type, value); }

  GraphBuilder b_;
};

TEST_F(Watch, LogOfZeroIsNamedAndNotTheNanThatComesOfIt) {
  Value* x = b_.arg(f32({2}));
  Value* log = b_.op(Kind::kLog, {x}, x->type);                // line 1: -inf
  Value* product = b_.op(Kind::kMultiply, {x, log}, x->type);  // line 2: 0 * -inf
  EXPECT_EQ(origin(b_.done({sum(product)}), {tensor({1, 0})}), "stablehlo.log test.py:1:1");
}

TEST_F(Watch, ZeroByZeroIsNamed) {
  Value* x = b_.arg(f32({2}));
  Value* y = b_.arg(f32({2}));
  Value* quotient = b_.op(Kind::kDivide, {x, y}, x->type);
  Value* more = b_.op(Kind::kExp, {quotient}, x->type);
  EXPECT_EQ(origin(b_.done({sum(more)}), {tensor({1, 0}), tensor({1, 0})}),
            "stablehlo.divide test.py:1:1");
}

TEST_F(Watch, AnOverflowIsNamedThroughWhatKeepsItsElements) {
  Value* x = b_.arg(f32({2}));
  Value* exp = b_.op(Kind::kExp, {x}, x->type);
  Value* minus = b_.op(Kind::kNegate, {exp}, x->type);
  EXPECT_EQ(origin(b_.done({sum(minus)}), {tensor({1, 100})}), "stablehlo.exponential test.py:1:1");
}

TEST_F(Watch, TheInfinityOfAMaskIsNoOrigin) {
  // Line 1: -inf; 2: the masked scores; 3: a sum of weights that is zero; 4: 0 / 0.
  Value* scores = b_.arg(f32({2}));
  Value* mask = b_.arg(i1({2}));
  Value* low = like(scores, -kInf);
  Value* masked = b_.op(Kind::kSelect, {mask, scores, low}, scores->type);
  Value* weights = b_.op(Kind::kExp, {masked}, scores->type);
  Value* share = b_.op(Kind::kDivide, {weights, weights}, scores->type);
  Tensor none = make_tensor(i1({2}));
  Tensor all = none;
  std::fill(all.data.begin(), all.data.end(), std::byte{1});
  Module& m = b_.done({sum(share)});
  EXPECT_EQ(origin(m, {tensor({1, 2}), none}), "stablehlo.divide test.py:4:1");
}

// Also where it has come through operations to the one that makes NaN of it.
TEST_F(Watch, WhatMakesNanOfTheInfinityOfAMaskIsTheOrigin) {
  Value* scores = b_.arg(f32({2}));
  Value* masked = b_.op(Kind::kAdd, {scores, like(scores, -kInf)}, scores->type);
  Value* product = b_.op(Kind::kMultiply, {masked, like(scores, 0)}, scores->type);
  EXPECT_EQ(origin(b_.done({sum(product)}), {tensor({1, 2})}), "stablehlo.multiply test.py:4:1");
}

TEST_F(Watch, AMaskThatNothingComesOfIsFinite) {
  Value* scores = b_.arg(f32({2}));
  Value* masked = b_.op(Kind::kAdd, {scores, like(scores, -kInf)}, scores->type);
  Value* weights = b_.op(Kind::kExp, {masked}, scores->type);
  EXPECT_EQ(origin(b_.done({sum(weights)}), {tensor({1, 2})}), "finite");
}

TEST_F(Watch, WhatDoesNotReachTheResultIsNoOrigin) {
  Value* x = b_.arg(f32({2}));
  b_.op(Kind::kLog, {x}, x->type);                             // line 1: -inf, for nothing
  Value* root = b_.op(Kind::kSqrt, {x}, x->type);              // line 2
  Value* quotient = b_.op(Kind::kDivide, {root, x}, x->type);  // line 3: 0 / 0
  EXPECT_EQ(origin(b_.done({sum(quotient)}), {tensor({1, 0})}), "stablehlo.divide test.py:3:1");
}

TEST_F(Watch, AnArgumentThatIsNotFiniteIsNamed) {
  Value* x = b_.arg(f32({2}));
  Value* y = b_.arg(f32({2}));
  Value* both = b_.op(Kind::kAdd, {x, y}, x->type);
  EXPECT_EQ(origin(b_.done({sum(both)}), {tensor({1, 0}), tensor({1, kInf})}), "argument 1");
}

TEST_F(Watch, EachResultHasAnOriginOfItsOwn) {
  Value* x = b_.arg(f32({2}));
  Value* n = b_.arg(i32({2}));
  Value* log = b_.op(Kind::kLog, {x}, x->type);             // line 1
  Value* quotient = b_.op(Kind::kDivide, {x, x}, x->type);  // line 2
  Value* twice = b_.op(Kind::kAdd, {n, n}, n->type);        // line 3
  Value* fine = b_.op(Kind::kMultiply, {x, x}, x->type);    // line 4
  const std::vector<std::string> expected = {"stablehlo.log test.py:1:1", "finite",
                                             "stablehlo.divide test.py:2:1", "finite"};
  EXPECT_EQ(origins(b_.done({log, twice, quotient, fine}), {tensor({1, 0}), make_tensor(i32({2}))}),
            expected);
}

// The sign of a value alone is that of its bits, which are compared as integers.
TEST_F(Watch, ScalarsAndNarrowFloatsAreLookedAt) {
  const Type narrow{Elem::kBf16, {}};
  Value* x = b_.arg(f32({}));
  Value* log = b_.op(Kind::kLog, {x}, x->type);                // line 1: -inf
  Value* y = b_.op(Kind::kConvert, {log}, narrow);             // line 2
  Value* z = b_.op(Kind::kMultiply, {y, like(y, 0)}, narrow);  // lines 3 and 4: NaN
  Value* low = b_.op(Kind::kMaximum, {z, z}, narrow);
  EXPECT_EQ(origin(b_.done({low}), {make_tensor(f32({}))}), "stablehlo.log test.py:1:1");
}

TEST_F(Watch, AConstantThatAloneIsNotFiniteIsNamed) {
  Value* x = b_.arg(f32({2}));
  Value* y = b_.op(Kind::kAdd, {x, like(x, kInf)}, x->type);
  EXPECT_EQ(origin(b_.done({sum(y)}), {tensor({1, 0})}), "stablehlo.constant test.py:1:1");
}

TEST_F(Watch, ValuesOfAllCoresAreLookedAt) {
  const FiniteWatch watch{.values = {{.source = WatchedValue::Source::kArgument},
                                     {.op = "log", .operands = {0}},
                                     {.op = "all_reduce", .operands = {1}}},
                          .results = {2}};
  constexpr int32_t kNan = 0x7FC00000;
  EXPECT_EQ(origin_of(watch, std::vector<int32_t>{0, 0, kNan, 0, kNan, kNan}, 0), 1u);
  EXPECT_EQ(origin_of(watch, std::vector<int32_t>{0, kNan, kNan, 0, 0, kNan}, 0), 1u);
  EXPECT_EQ(origin_of(watch, std::vector<int32_t>{0, 0, 0, 0, kNan, 0}, 0), std::nullopt);
}

TEST_F(Watch, AProgramWithoutFloatsHasNothingToWatch) {
  Value* x = b_.arg(i32({2}));
  Module& m = b_.done({b_.op(Kind::kAdd, {x, x}, x->type)});
  const FiniteWatch watch = watch_finite(m);
  m.number_ops();
  verify(m);
  EXPECT_TRUE(watch.values.empty());
  EXPECT_EQ(origin_of(watch, {}, 0), std::nullopt);
}

}  // namespace
}  // namespace tpu::compiler
