// Contractions of f64 on the matrix units (legalize/double/double_contraction.hpp): slices whose
// products sum exactly in f32.
#include "legalize/double/double_contraction.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "double_numbers.hpp"

namespace tpu::compiler {
namespace {

using namespace test;  // of double_numbers.hpp

struct Sizes {
  int64_t rows = 0, terms = 0, columns = 0;
};

Doubles product(const Sizes& n, const Doubles& x, const Doubles& y,
                const DotAttrs& attrs = {{}, {}, {1}, {0}}) {
  GraphBuilder b;
  Value* left = b.arg(f64({n.rows, n.terms}));
  Value* right = b.arg(f64({n.terms, n.columns}));
  Value* out = b.op(Kind::kDotGeneral, {left, right}, f64({n.rows, n.columns}), attrs);
  EXPECT_TRUE(contracts_by_slices(*out->def, 1) || attrs.lhs_precision == Precision::kHighest);
  return values<double>(run_doubles(
      b.done({out}), {bits_of(x, {n.rows, n.terms}), bits_of(y, {n.terms, n.columns})})[0]);
}

// The largest error by the bound that docs/numerics.md gives: of the row's and the column's largest
// magnitudes, and of the terms' magnitudes.
double largest_error_of_product(const Sizes& n, const Doubles& x, const Doubles& y,
                                const Doubles& made) {
  double worst = 0;
  for (int64_t i = 0; i < n.rows; ++i) {
    for (int64_t j = 0; j < n.columns; ++j) {
      long double sum = 0, row = 0, column = 0;
      for (int64_t k = 0; k < n.terms; ++k) {
        const long double a = x[static_cast<size_t>(i * n.terms + k)];
        const long double c = y[static_cast<size_t>(k * n.columns + j)];
        sum += a * c;
        row = std::max(row, std::abs(a));
        column = std::max(column, std::abs(c));
      }
      const long double gap = std::abs(made[static_cast<size_t>(i * n.columns + j)] - sum);
      worst = std::max(worst, static_cast<double>(gap / (row * column * n.terms)));
    }
  }
  return worst;
}

TEST(DoubleContraction, SumsOfTheFirstBracketsFitF32) {
  for (const int64_t terms : {1, 64, 65, 256, 257, 819, 820, 3276, 3277, 10923, 40000, 279620}) {
    const auto plan = slice_plan(terms);
    ASSERT_TRUE(plan) << terms;
    const int64_t largest = int64_t{1} << (plan->bits - 1);
    EXPECT_LE(terms * plan->exact * largest * largest, 1 << 24) << terms;
    EXPECT_GE(plan->count * plan->bits, 54) << terms;
    EXPECT_GT(plan->exact * plan->bits, 29) << terms;
  }
  EXPECT_FALSE(slice_plan(1 << 20));
}

TEST(DoubleContraction, ErrorsAreRelativeToTheLargestOfRowAndColumn) {
  for (const Sizes& n : {Sizes{48, 64, 50}, Sizes{50, 200, 48}, Sizes{16, 3000, 16}}) {
    const Doubles x = random_numbers(static_cast<size_t>(n.rows * n.terms), 1);
    const Doubles y = random_numbers(static_cast<size_t>(n.terms * n.columns), 2, 1e6);
    EXPECT_LE(largest_error_of_product(n, x, y, product(n, x, y)), 0x1p-50) << n.terms;
  }
}

// Every digit is the largest one, and all have one sign.
TEST(DoubleContraction, LargestDigitsDoNotOverflow) {
  for (const Sizes& n : {Sizes{48, 64, 48}, Sizes{40, 256, 40}, Sizes{16, 3276, 16}}) {
    for (const double v : {1 - 0x1p-48, 0x1.01010101010p-1, 0x1.fdfbf7efdfcp-1}) {
      const Doubles x(static_cast<size_t>(n.rows * n.terms), v);
      const Doubles y(static_cast<size_t>(n.terms * n.columns), -v);
      EXPECT_LE(largest_error_of_product(n, x, y, product(n, x, y)), 0x1p-47) << v;
    }
  }
}

TEST(DoubleContraction, PowersOfTwoOfRowsAndColumnsChangeNothingElse) {
  const Sizes n{48, 80, 48};
  const Doubles x = random_numbers(48 * 80, 3), y = random_numbers(80 * 48, 4);
  const Doubles plain = product(n, x, y);
  Doubles scaled_x = x, scaled_y = y, wanted = plain;
  for (size_t i = 0; i < 48; ++i) {
    for (size_t k = 0; k < 80; ++k) {
      scaled_x[i * 80 + k] = std::ldexp(x[i * 80 + k], static_cast<int>(i) * 2);
      scaled_y[k * 48 + i] = std::ldexp(y[k * 48 + i], -static_cast<int>(i));
    }
    for (size_t j = 0; j < 48; ++j) {
      wanted[i * 48 + j] =
          std::ldexp(plain[i * 48 + j], static_cast<int>(i) * 2 - static_cast<int>(j));
    }
  }
  EXPECT_EQ(product(n, scaled_x, scaled_y), wanted);
}

TEST(DoubleContraction, SpecialValuesStayInTheirRowsAndColumns) {
  const Sizes n{48, 64, 48};
  Doubles x = random_numbers(48 * 64, 5), y = random_numbers(64 * 48, 6);
  const Doubles plain = product(n, x, y);
  std::fill(x.begin() + 2 * 64, x.begin() + 3 * 64, 0.0);
  x[0 * 64 + 7] = kInf;
  x[1 * 64 + 7] = kNan;
  y[7 * 48 + 3] = -2;
  y[7 * 48 + 4] = 0;
  const Doubles made = product(n, x, y);
  EXPECT_EQ(made[3], -kInf);
  EXPECT_TRUE(std::isnan(made[4]));
  EXPECT_TRUE(std::isnan(made[48 + 5]));
  for (size_t j = 5; j < 48; ++j) {
    EXPECT_EQ(made[2 * 48 + j], 0);
    EXPECT_EQ(made[5 * 48 + j], plain[5 * 48 + j]);
  }
}

TEST(DoubleContraction, OverflowsAndVanishesAtTheEndsOfF32) {
  const Sizes n{48, 64, 48};
  const Doubles large(48 * 64, 1e25), small(64 * 48, 1e-25);
  for (const double v : product(n, large, large)) {
    EXPECT_EQ(v, kInf);
  }
  for (const double v : product(n, small, small)) {
    EXPECT_EQ(v, 0);
  }
  for (const double v : product(n, large, small)) {
    EXPECT_NEAR(v, 64, 1e-11);
  }
}

// Which the scheme would lose: small numbers beside large ones that meet zeros.
TEST(DoubleContraction, PrecisionHighestKeepsSmallNumbersBesideLargeOnes) {
  const Sizes n{48, 64, 48};
  Doubles x(48 * 64, 0), y(64 * 48, 0);
  x[0] = 1e25;
  x[1] = 1.25;
  y[48] = 3;
  const DotAttrs highest{{}, {}, {1}, {0}, Precision::kHighest, Precision::kHighest};
  EXPECT_EQ(product(n, x, y, highest)[0], 3.75);
  EXPECT_NE(product(n, x, y)[0], 3.75);
}

TEST(DoubleContraction, BatchesAndFreeDimsInAnyOrder) {
  constexpr int64_t kBatch = 3, kRows = 40, kTerms = 60, kColumns = 30;
  GraphBuilder b;
  Value* left = b.arg(f64({kTerms, kBatch, kRows}));
  Value* right = b.arg(f64({kColumns, kTerms, kBatch}));
  Value* out = b.op(Kind::kDotGeneral, {left, right}, f64({kBatch, kRows, kColumns}),
                    DotAttrs{{1}, {2}, {0}, {1}});
  ASSERT_TRUE(contracts_by_slices(*out->def, 1));
  const Doubles x = random_numbers(kBatch * kRows * kTerms, 7);
  const Doubles y = random_numbers(kBatch * kTerms * kColumns, 8);
  const Doubles made =
      values<double>(run_doubles(b.done({out}), {bits_of(x, {kTerms, kBatch, kRows}),
                                                 bits_of(y, {kColumns, kTerms, kBatch})})[0]);
  for (int64_t g = 0; g < kBatch; ++g) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < kTerms; ++k) {
          sum += x[static_cast<size_t>((k * kBatch + g) * kRows + i)] *
                 y[static_cast<size_t>((j * kTerms + k) * kBatch + g)];
        }
        EXPECT_NEAR(made[static_cast<size_t>((g * kRows + i) * kColumns + j)], sum, 1e-11);
      }
    }
  }
}

// One spatial dimension, padding, stride, two groups of features.
TEST(DoubleContraction, ConvolutionsOfGroups) {
  constexpr int64_t kBatch = 4, kLength = 24, kIn = 8, kOut = 6, kTaps = 5, kGroups = 2, kTo = 12;
  GraphBuilder b;
  Value* image = b.arg(f64({kBatch, kLength, kIn}));
  Value* kernel = b.arg(f64({kTaps, kIn / kGroups, kOut}));
  const ConvAttrs attrs{.window_stride = {2},
                        .pad_low = {2},
                        .pad_high = {2},
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
                        .feature_groups = kGroups};
  Value* out = b.op(Kind::kConvolution, {image, kernel}, f64({kBatch, kTo, kOut}), attrs);
  EXPECT_FALSE(contracts_by_slices(*out->def, 1));  // few products
  ASSERT_TRUE(contracts_by_slices(*out->def, 8));
  const Doubles x = random_numbers(kBatch * kLength * kIn, 9);
  const Doubles w = random_numbers(kTaps * kIn / kGroups * kOut, 10);
  Module& m = b.done({out});
  m.num_cores = 8;
  EXPECT_TRUE(split_double(m));
  m.num_cores = 1;  // each of them computes the same
  const Doubles made = values<double>(
      interpret(m, {{bits_of(x, {kBatch, kLength, kIn}), bits_of(w, {kTaps, kIn / kGroups, kOut})}},
                {})[0][0]);
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t t = 0; t < kTo; ++t) {
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (int64_t k = 0; k < kTaps; ++k) {
          const int64_t at = 2 * t + k - 2;
          for (int64_t c = 0; at >= 0 && at < kLength && c < kIn / kGroups; ++c) {
            const int64_t channel = o / (kOut / kGroups) * (kIn / kGroups) + c;
            sum += x[static_cast<size_t>((n * kLength + at) * kIn + channel)] *
                   w[static_cast<size_t>((k * kIn / kGroups + c) * kOut + o)];
          }
        }
        EXPECT_NEAR(made[static_cast<size_t>((n * kTo + t) * kOut + o)], sum, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace tpu::compiler
