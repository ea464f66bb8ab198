// Numbers that a program draws without a state of its own: their distributions, and that no two
// draws of a run are the same, wherever they stand.
#include "legalize/rng.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "entry/pipeline.hpp"
#include "graph_builder.hpp"
#include "ir/interpreter.hpp"
#include "tensors.hpp"

namespace tpu::compiler::test {
namespace {

class Rng : public testing::Test {
 protected:
  Value* bound(Elem elem, double value) { return constant(Type{elem, {}}, value); }
  Value* constant(const Type& type, double value) {
    return b_.op(
        Kind::kConstant, {}, type,
        ConstantAttrs{is_float(type.elem) ? make_splat(type, value)
                                          : make_splat_int(type, static_cast<int64_t>(value))});
  }
  Value* draw(const std::string& distribution, Type type, double a, double b) {
    Value* shape = constant({Elem::kI64, {type.rank()}}, 0);  // the result says it
    Value *low = bound(type.elem, a), *high = bound(type.elem, b);
    return b_.op(Kind::kRng, {low, high, shape}, std::move(type), RngAttrs{distribution});
  }

  // Results of the program, which has no arguments, by the passes that leave nothing random.
  std::vector<Tensor> run(std::vector<Value*> results, uint64_t seed = 0) {
    Module& m = b_.done(std::move(results));
    m.rng_seed = seed;
    run_passes(m, compile_passes());
    return join_results(m, interpret(m, {{}}));
  }

  GraphBuilder b_;
};

double mean(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double deviation(const std::vector<float>& x) {
  const double m = mean(x);
  double sum = 0;
  for (const float v : x) {
    sum += (v - m) * (v - m);
  }
  return std::sqrt(sum / static_cast<double>(x.size()));
}
double share_below(const std::vector<float>& x, double bound) {
  return static_cast<double>(
             std::count_if(x.begin(), x.end(), [&](float v) { return v < bound; })) /
         static_cast<double>(x.size());
}

// Bounds of means and shares: four deviations of 20,000 draws.
TEST_F(Rng, UniformFloatsFillTheirInterval) {
  const auto x = values<float>(run({draw("uniform", f32({100, 200}), -2, 6)})[0]);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 6);
  EXPECT_NEAR(mean(x), 2, 0.066);
  EXPECT_NEAR(deviation(x), 8 / std::sqrt(12.0), 0.03);
  EXPECT_NEAR(share_below(x, -1), 0.125, 0.0094);
  EXPECT_NEAR(share_below(x, 5), 0.875, 0.0094);
}

// bf16 rounds 255 of 256 up to 1.
TEST_F(Rng, UniformHalvesStayBelowTheirBound) {
  const auto x = values<uint16_t>(run({draw("uniform", {Elem::kBf16, {20000}}, 0, 1)})[0]);
  constexpr uint16_t kOne = 0x3f80;
  EXPECT_LT(*std::max_element(x.begin(), x.end()), kOne);
}

TEST_F(Rng, NormalFloatsHaveMeanDeviationAndTails) {
  const auto x = values<float>(run({draw("normal", f32({20001}), 1, 3)})[0]);
  ASSERT_EQ(x.size(), 20001u);
  EXPECT_NEAR(mean(x), 1, 0.085);
  EXPECT_NEAR(deviation(x), 3, 0.06);
  EXPECT_NEAR(share_below(x, 1), 0.5, 0.0142);
  EXPECT_NEAR(share_below(x, 1 - 6), 0.02275, 0.0043);
  EXPECT_NEAR(share_below(x, 1 + 3), 0.84134, 0.0104);
}

template <typename T>
void expect_each(const std::vector<T>& x, T low, T high) {
  for (T value = low; value != high; ++value) {
    EXPECT_NEAR(
        static_cast<double>(std::count(x.begin(), x.end(), value)) / static_cast<double>(x.size()),
        1.0 / static_cast<double>(high - low), 0.012)
        << +value;
  }
  EXPECT_TRUE(std::all_of(x.begin(), x.end(), [&](T v) { return v >= low && v < high; }));
}

TEST_F(Rng, IntegersOfEveryWidthComeEquallyOften) {
  const Dims n = {20000};
  const auto all =
      run({draw("uniform", {Elem::kI8, n}, -3, 4), draw("uniform", {Elem::kU16, n}, 5, 9),
           draw("uniform", {Elem::kI32, n}, -2, 3), draw("uniform", {Elem::kI64, n}, -1, 4),
           draw("uniform", {Elem::kI1, n}, 0, 1)});
  expect_each<int8_t>(values<int8_t>(all[0]), -3, 4);
  expect_each<uint16_t>(values<uint16_t>(all[1]), 5, 9);
  expect_each<int32_t>(values<int32_t>(all[2]), -2, 3);
  expect_each<int64_t>(values<int64_t>(all[3]), -1, 4);
  expect_each<uint8_t>(values<uint8_t>(all[4]), 0, 1);
}

TEST_F(Rng, EveryDrawIsAnother) {
  const auto all = run({draw("uniform", f32({64}), 0, 1), draw("uniform", f32({64}), 0, 1)});
  auto x = values<float>(all[0]);
  const auto y = values<float>(all[1]);
  x.insert(x.end(), y.begin(), y.end());
  std::sort(x.begin(), x.end());
  EXPECT_EQ(std::unique(x.begin(), x.end()), x.end());
}

std::vector<float> of_seed(uint64_t seed) {
  GraphBuilder b;
  Value* zero = b.constant(f32({}), 0);
  Value* one = b.constant(f32({}), 1);
  Value* shape = b.op(Kind::kConstant, {}, i32({1}), ConstantAttrs{make_splat_int(i32({1}), 8)});
  Module& m = b.done({b.op(Kind::kRng, {zero, one, shape}, f32({8}), RngAttrs{"uniform"})});
  m.rng_seed = seed;
  run_passes(m, compile_passes());
  return values<float>(interpret(m, {{}})[0][0]);
}

TEST_F(Rng, TheSeedSaysTheNumbers) {
  EXPECT_EQ(of_seed(5), of_seed(5));
  EXPECT_NE(of_seed(5), of_seed(6));
  EXPECT_NE(of_seed(0), of_seed(uint64_t{1} << 63));
}

// The loop draws in its condition and in its body, three times each; a branch draws too.
TEST_F(Rng, IterationsConditionsAndBranchesDrawOthers) {
  const Type line = f32({4});
  Value* start = b_.constant(f32({3, 4}), 0);
  Value* zero = constant(i32({}), 0);
  const auto in = [&](Region& r, Kind kind, std::vector<Value*> operands, Type type,
                      Attrs attrs = NoAttrs{}) {
    return r.append(kind, std::move(operands), {std::move(type)}, std::move(attrs), unknown_loc())
        ->result();
  };
  const auto number = [&](Region& r, const Type& type, double value) {
    return in(
        r, Kind::kConstant, {}, type,
        ConstantAttrs{is_float(type.elem) ? make_splat(type, value)
                                          : make_splat_int(type, static_cast<int64_t>(value))});
  };
  const auto drawn = [&](Region& r, const Type& type) {
    return in(r, Kind::kRng,
              {number(r, f32({}), 0), number(r, f32({}), 1), number(r, i32({type.rank()}), 0)},
              type, RngAttrs{"uniform"});
  };
  Op* loop = b_.region().append(Kind::kWhile, {zero, start}, {i32({}), f32({3, 4})}, NoAttrs{},
                                unknown_loc());
  Region* cond = loop->add_region();
  Value* i = cond->add_arg(i32({}));
  cond->add_arg(f32({3, 4}));
  Value* below_two = in(*cond, Kind::kCompare, {drawn(*cond, f32({})), number(*cond, f32({}), 2)},
                        i1({}), CompareAttrs{CompareDirection::kLt, CompareType::kFloat});
  Value* more = in(*cond, Kind::kCompare, {i, number(*cond, i32({}), 3)}, i1({}),
                   CompareAttrs{CompareDirection::kLt, CompareType::kSigned});
  Value* both = in(*cond, Kind::kAnd, {below_two, more}, i1({}));
  cond->append(Kind::kReturn, {both}, {}, NoAttrs{}, unknown_loc());
  Region* body = loop->add_region();
  Value* at = body->add_arg(i32({}));
  Value* table = body->add_arg(f32({3, 4}));
  Value* row = in(*body, Kind::kReshape, {drawn(*body, line)}, f32({1, 4}));
  Value* put = in(*body, Kind::kDynamicUpdateSlice, {table, row, at, number(*body, i32({}), 0)},
                  f32({3, 4}));
  Value* next = in(*body, Kind::kAdd, {at, number(*body, i32({}), 1)}, i32({}));
  body->append(Kind::kReturn, {next, put}, {}, NoAttrs{}, unknown_loc());
  Value* yes = constant(i1({}), 1);
  Op* branch = b_.region().append(Kind::kIf, {yes}, {line}, NoAttrs{}, unknown_loc());
  for (int side = 0; side < 2; ++side) {
    Region* r = branch->add_region();
    r->append(Kind::kReturn, {drawn(*r, line)}, {}, NoAttrs{}, unknown_loc());
  }
  const auto all = run({loop->result(1), branch->result(), draw("uniform", line, 0, 1)});
  std::vector<float> seen;
  for (const Tensor& t : all) {
    const auto part = values<float>(t);
    seen.insert(seen.end(), part.begin(), part.end());
  }
  ASSERT_EQ(seen.size(), 20u);
  std::sort(seen.begin(), seen.end());
  EXPECT_GT(seen.front(), 0.0f);
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

}  // namespace
}  // namespace tpu::compiler::test
