// Fourier transforms against sums in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

std::vector<Exact> sums(const std::vector<Exact>& x, int sign) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<Exact> out(x.size());
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i < n; ++i) {
      out[static_cast<size_t>(k)] +=
          x[static_cast<size_t>(i)] * fourier::root_of_unity(sign * (i * k % n), n);
    }
    if (sign > 0) {
      out[static_cast<size_t>(k)] /= static_cast<double>(n);
    }
  }
  return out;
}

Tensor transformed(FftType type, int64_t n, const Type& in, const Type& out, const Tensor& x) {
  GraphBuilder b;
  Value* arg = b.arg(in);
  Module& m = b.done({b.op(Kind::kFft, {arg}, out, FftAttrs{type, {n}})});
  verify(m);
  split_complex(m);
  m.number_ops();
  verify(m);
  EvalOptions options;
  options.dots = DotMode::kDouble;
  return interpret(m, {{{m.main->body.args[0]->type, x.data}}}, options)[0][0];
}

class Transform : public ::testing::TestWithParam<int64_t> {};

TEST_P(Transform, IsTheSumOfRoots) {
  const int64_t n = GetParam();
  const double bound = 3e-7 * std::sqrt(2 + std::log2(static_cast<double>(n)));
  const Numbers x = random_numbers(n, 7);
  const Tensor bytes = tensor({Elem::kF32, {n, 2}}, x);
  const std::vector<Exact> exact(x.begin(), x.end());
  expect_near(test::values<Number>(transformed(FftType::kFft, n, c64({n}), c64({n}), bytes)),
              sums(exact, -1), bound);
  expect_near(test::values<Number>(transformed(FftType::kIfft, n, c64({n}), c64({n}), bytes)),
              sums(exact, 1), bound);
}

TEST_P(Transform, OfRealNumbersHasHalfAsManyPoints) {
  const int64_t n = GetParam(), half = n / 2 + 1;
  const double bound = 3e-7 * std::sqrt(2 + std::log2(static_cast<double>(n)));
  std::vector<float> x;
  std::vector<Exact> exact;
  for (const Number& v : random_numbers(n, 8)) {
    x.push_back(v.real());
    exact.emplace_back(v.real());
  }
  std::vector<Exact> wanted = sums(exact, -1);
  wanted.resize(static_cast<size_t>(half));
  const Tensor made = transformed(FftType::kRfft, n, f32({n}), c64({half}), tensor(f32({n}), x));
  expect_near(test::values<Number>(made), wanted, bound);
  // And back. What an inverse does not read, the imaginary parts of the ends, may be anything.
  Numbers points = test::values<Number>(made);
  points[0].imag(3);
  if (n % 2 == 0) {
    points.back().imag(-5);
  }
  const auto back = test::values<float>(transformed(FftType::kIrfft, n, c64({half}), f32({n}),
                                                    tensor({Elem::kF32, {half, 2}}, points)));
  double gap = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    gap += std::pow(back[i] - x[i], 2);
    norm += std::pow(x[i], 2);
  }
  EXPECT_LE(std::sqrt(gap), 2 * bound * std::sqrt(norm));
}

INSTANTIATE_TEST_SUITE_P(Lengths, Transform,
                         ::testing::Values(1, 2, 3, 4, 5, 8, 15, 16, 127, 128, 255, 256, 257, 258,
                                           360, 509, 512, 514, 521, 768, 1021, 1024, 1042, 2048));

// Beyond 2^16 the twiddles are computed by the program: one point has a whole row of them.
TEST(Transform, OfOnePointIsARoot) {
  for (const int64_t n : {int64_t{1} << 18, int64_t{3} * 5 * 7 * 11 * 13 * 17}) {
    for (const FftType type : {FftType::kFft, FftType::kIfft}) {
      const int64_t at = n / 3 + 12345;
      Numbers x(static_cast<size_t>(n));
      x[static_cast<size_t>(at)] = 1;
      const auto made = test::values<Number>(
          transformed(type, n, c64({n}), c64({n}), tensor({Elem::kF32, {n, 2}}, x)));
      const int sign = type == FftType::kFft ? -1 : 1;
      const double scale = sign < 0 ? 1 : 1.0 / static_cast<double>(n);
      double worst = 0;
      for (int64_t k = 0; k < n; ++k) {
        const Exact wanted = fourier::root_of_unity(sign * (k * at % n), n);
        worst = std::max(worst, std::abs(Exact(made[static_cast<size_t>(k)]) / scale - wanted));
      }
      EXPECT_LE(worst, 1e-6) << n;
    }
  }
}

TEST(Transform, RootsAreExactAtTheEighths) {
  for (const int64_t n : {8, 24, 1000}) {
    EXPECT_EQ(fourier::root_of_unity(0, n), Exact(1, 0));
    EXPECT_EQ(fourier::root_of_unity(n / 4, n), Exact(0, 1));
    EXPECT_EQ(fourier::root_of_unity(-n / 2, n), Exact(-1, 0));
    EXPECT_EQ(fourier::root_of_unity(3 * n / 4, n), Exact(0, -1));
    const Exact eighth = fourier::root_of_unity(n / 8, n);
    EXPECT_EQ(eighth.real(), eighth.imag());
  }
}

// Every level is one product of at most 256 points (512 of a prime): constants stay small.
TEST(Transform, LengthsAreCutIntoFactors) {
  for (int64_t n : {257, 1000, 4096, 65536, 1 << 20, 509 * 64}) {
    for (int level = 0; n > 1; ++level) {
      const int64_t factor = fourier::first_factor(n);
      ASSERT_GT(factor, 1) << n;
      ASSERT_EQ(n % factor, 0);
      ASSERT_LE(factor, 512);
      ASSERT_LT(level, 5);
      n /= factor;
    }
  }
  EXPECT_EQ(fourier::first_factor(1021), 0);
  EXPECT_EQ(fourier::first_factor(int64_t{2} * 1021), 2);
}

TEST(Transform, WrongShapesAreRefused) {
  const auto error = [](FftType type, const Type& in, const Type& out, Dims length) {
    GraphBuilder b;
    Value* x = b.arg(in);
    try {
      verify(b.done({b.op(Kind::kFft, {x}, out, FftAttrs{type, std::move(length)})}));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(FftType::kRfft, f32({8}), c64({5}), {8}), "");
  EXPECT_THAT(error(FftType::kRfft, c64({8}), c64({5}), {8}), HasSubstr("must take f32"));
  EXPECT_THAT(error(FftType::kFft, c64({8}), c64({8}), {7}), HasSubstr("must have 7 elements"));
  EXPECT_THAT(error(FftType::kIrfft, c64({8}), f32({8}), {8}), HasSubstr("must have 5 elements"));
  EXPECT_THAT(error(FftType::kFft, c64({8}), c64({8}), {}), HasSubstr("1 to 3 lengths"));
  EXPECT_THAT(error(FftType::kRfft, f32({8}), c64({8}), {8}), HasSubstr("complex64[5]"));
}

}  // namespace
}  // namespace tpu::compiler
