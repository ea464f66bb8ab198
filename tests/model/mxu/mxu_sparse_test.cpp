// The fast engine leaves out the zeros of lhs; the reference does not. Same bits at every density,
// also where zeros matter: infinite and NaN weights, and sums that are -0.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::expect_same;
using test::OwnedJob;
using test::Values;

constexpr double kDensities[] = {0, 0.02, 0.05, 0.25, 0.5, 0.95};
constexpr int64_t kManyRows = 66;  // of fewer, long commands do not look for zeros

// Keeps about `density` of the elements; the others become zeros of both signs and subnormals.
void thin(std::vector<uint8_t>& bytes, bool bf16, double density, std::mt19937_64& rng) {
  constexpr uint32_t kZeros[] = {0, 0, 0, 0x80000000U, 0x00010000U, 0x807f0000U};
  const size_t element = bf16 ? 2 : 4;
  for (size_t i = 0; i + element <= bytes.size(); i += element) {
    if (std::uniform_real_distribution<double>()(rng) >= density) {
      const uint32_t bits = kZeros[rng() % std::size(kZeros)] >> (bf16 ? 16 : 0);
      std::memcpy(&bytes[i], &bits, element);
    }
  }
}

void set_f32(std::vector<uint8_t>& bytes, int64_t index, float value) {
  std::memcpy(&bytes[static_cast<size_t>(index) * sizeof value], &value, sizeof value);
}

TEST(MxuSparse, MatchesReferenceAtAnyDensity) {
  uint64_t seed = 0;
  for (const test::PackedShape& shape :
       {test::PackedShape{.rows = 1, .k = 1, .n = 128},
        {.rows = 50, .k = 300, .n = 128},
        {.rows = 81, .k = 300, .n = 128},
        {.rows = 13, .k = 130, .n = 200, .accumulate = true},
        {.rows = 100, .k = 127, .n = 330, .lhs_bf16 = true},
        {.rows = 200, .k = 321, .n = 64, .lhs_bf16 = true, .rhs_bf16 = true, .accumulate = true},
        {.rows = 25, .k = 1100, .n = 640, .rhs_bf16 = true}}) {
    for (const double density : kDensities) {
      for (const Values values : {Values::kNormal, Values::kSpecial, Values::kUnderflow}) {
        std::mt19937_64 rng(++seed);
        OwnedJob owned = test::packed_job(shape, seed, values);
        thin(owned.lhs, shape.lhs_bf16, density, rng);
        expect_same(owned, "seed " + std::to_string(seed));
      }
    }
  }
}

TEST(MxuSparse, MatchesReferenceWithOneElement) {
  OwnedJob owned = test::packed_job({.rows = kManyRows, .k = 290, .n = 128}, 1, Values::kNormal);
  std::mt19937_64 rng(1);
  for (const int64_t at : {int64_t{0}, int64_t{31}, int64_t{256}, kManyRows * 290 - 1}) {
    thin(owned.lhs, false, 0, rng);
    set_f32(owned.lhs, at, 1.75F);
    expect_same(owned, "element " + std::to_string(at));
  }
}

// Rows of windows overlap, so that they read one rounded range at odd places.
TEST(MxuSparse, MatchesReferenceOnOverlappingTaps) {
  uint64_t seed = 0;
  for (const bool bf16 : {false, true}) {
    for (const int64_t channels : {3, 33, 130, 160}) {
      for (const double density : kDensities) {
        OwnedJob owned = test::window_job(
            {.side = 9, .channels = channels, .out = 128, .bf16 = bf16}, ++seed, Values::kNormal);
        std::mt19937_64 rng(seed);
        thin(owned.lhs, bf16, density, rng);
        expect_same(owned, "seed " + std::to_string(seed));
      }
    }
  }
}

// Blocks of many zeros beside dense ones, columns that no whole group of panels takes, K of several
// blocks. Rows 512 floats apart are packed block by block, others lie in one range.
TEST(MxuSparse, MatchesReferenceWhereDensityVaries) {
  for (const int64_t k : {512, 700}) {
    OwnedJob owned = test::packed_job({.rows = 230, .k = k, .n = 200, .accumulate = true},
                                      static_cast<uint64_t>(k), Values::kUnderflow);
    std::mt19937_64 rng(5);
    const auto third = static_cast<std::ptrdiff_t>(owned.lhs.size() / 12 * 4);
    std::vector<uint8_t> few(owned.lhs.begin() + third, owned.lhs.begin() + 2 * third);
    thin(few, false, 0.1, rng);
    std::copy(few.begin(), few.end(), owned.lhs.begin() + third);
    expect_same(owned, "k " + std::to_string(k));
  }
}

// 0 * inf and 0 * NaN are NaN, wherever they stand.
TEST(MxuSparse, ZerosMeetInfinitiesAndNans) {
  for (const float special : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const int64_t place : {int64_t{0}, int64_t{128 * 20 + 70}, int64_t{128 * 511 + 127}}) {
      for (const int64_t rows : {int64_t{20}, kManyRows, int64_t{300}}) {
        OwnedJob owned = test::packed_job({.rows = rows, .k = 512, .n = 128}, 3, Values::kNormal);
        std::mt19937_64 rng(3);
        thin(owned.lhs, false, 0.1, rng);
        set_f32(owned.rhs, place, special);
        expect_same(owned, "in rhs at " + std::to_string(place));
        test::transpose_rhs(owned);
        expect_same(owned, "in transposed rhs at " + std::to_string(place));
        OwnedJob other = test::packed_job({.rows = rows, .k = 512, .n = 128}, 4, Values::kNormal);
        thin(other.lhs, false, 0.1, rng);
        set_f32(other.lhs, place % (rows * 512), special);
        expect_same(other, "in lhs at " + std::to_string(place));
      }
    }
  }
}

// Results start at -0, and in every segment both chains flush to -0. In the last one zeros of lhs
// follow: with a positive weight they make +0 of the chain and of the result, else both stay -0.
// K = 126 and 127 end with terms beyond K, which are +0 too.
TEST(MxuSparse, FlushedSumsMeetZeros) {
  constexpr float kTiny = 0x1p-70F;  // its square underflows
  constexpr int64_t kRows = kManyRows, kColumns = 128;
  for (const int64_t k : {128, 127, 126, 256}) {
    OwnedJob owned = test::packed_job({.rows = kRows, .k = k, .n = kColumns, .accumulate = true}, 1,
                                      Values::kNormal);
    std::fill(owned.lhs.begin(), owned.lhs.end(), uint8_t{0});
    std::fill(owned.out.begin(), owned.out.end(), 0x80000000U);
    const int64_t last = (k - 1) / 32 * 32;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t segment = 0; segment <= last; segment += 32) {
        const int64_t at = row * k + segment + (segment == last ? row % 29 : 30);
        set_f32(owned.lhs, at, kTiny);
        set_f32(owned.lhs, at + 1, kTiny);
      }
    }
    std::mt19937_64 rng(9);
    for (int64_t i = 0; i < k * kColumns; ++i) {
      const bool may_be_positive = i / kColumns >= last && i % kColumns >= 32;
      set_f32(owned.rhs, i, may_be_positive && rng() % 8 == 0 ? kTiny : -kTiny);
    }
    expect_same(owned, "k " + std::to_string(k));
    std::vector<uint32_t> out = owned.out;
    MxuScalarEngine(spec::MxuShape{}).run(owned.on(out));
    EXPECT_GT(std::count(out.begin(), out.end(), 0U), kRows * 32) << "both zeros must occur";
    EXPECT_EQ(std::count(out.begin(), out.end(), 0x80000000U) > kRows, k % 128 == 0);
  }
}

// Sums, running values and outputs about the smallest normal number, with zeros between.
TEST(MxuSparse, MatchesReferenceWhereSumsUnderflow) {
  constexpr float kFactors[] = {0x1p-70F, -0x1p-70F, 0x1p-63F, -0x1.8p-63F, 0x1.cp-63F, 0.0F};
  constexpr float kStarts[] = {0.0F, -0.0F, 0x1.8p-126F, -0x1.cp-126F, -0x1p-130F};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 rng(seed);
    const int64_t k = std::array<int64_t, 7>{125, 126, 127, 128, 256, 383, 320}[seed % 7];
    OwnedJob owned = test::packed_job({.rows = 70, .k = k, .n = 128, .accumulate = seed % 4 != 0},
                                      seed, Values::kNormal);
    if (k == 320) {  // two taps: empty segments behind the first, in the middle of a block
      owned.job.k_count[2] = 160;
      owned.job.t_count[2] = 2;
      owned.job.t_lhs_stride[2] = 160 * 4;
      owned.job.t_rhs_stride[2] = 160 * 128 * 4;
    }
    const auto refill = [&](std::vector<uint8_t>& bytes) {
      for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        set_f32(bytes, static_cast<int64_t>(i), kFactors[rng() % std::size(kFactors)]);
      }
    };
    refill(owned.lhs);
    refill(owned.rhs);
    for (uint32_t& out : owned.out) {
      std::memcpy(&out, &kStarts[rng() % std::size(kStarts)], sizeof out);
    }
    thin(owned.lhs, false, seed % 3 == 0 ? 0.02 : 0.08, rng);
    expect_same(owned, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace tpu::model
