// Random numbers: published vectors of Philox, accuracy of the normal numbers, statistics,
// permutations.
#include "numbers/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tpu::driver {
namespace {

using training::inverse_normal;
using training::permutation;
using training::philox;
using training::RandomPurpose;
using training::RandomStream;

TEST(Philox, MatchesThePublishedVectors) {
  // kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(InverseNormal, IsAccurateInCentreAndTails) {
  EXPECT_EQ(inverse_normal(0.5), 0.0);
  EXPECT_NEAR(inverse_normal(0.3), -0.5244005127080407, 1e-15);
  EXPECT_NEAR(inverse_normal(0.9), 1.2815515655446008, 1e-14);
  EXPECT_NEAR(inverse_normal(0.01), -2.3263478740408408, 1e-14);
  EXPECT_NEAR(inverse_normal(1e-5), -4.2648907939228256, 1e-13);
  EXPECT_NEAR(inverse_normal(1e-12), -7.034483825301132, 1e-13);
  EXPECT_NEAR(inverse_normal(0.999999), 4.753424308817089, 1e-9);
}

TEST(RandomStream, HasMomentsOfItsDistributions) {
  const RandomStream stream(42, RandomPurpose::kState, 3);
  constexpr int kCount = 100000;
  double mean = 0;
  double square = 0;
  double uniform = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = stream.normal(i);
    mean += x / kCount;
    square += x * x / kCount;
    const double u = stream.uniform(i);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u / kCount;
  }
  // Five standard errors.
  EXPECT_NEAR(mean, 0.0, 5 / std::sqrt(double{kCount}));
  EXPECT_NEAR(square, 1.0, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(uniform, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
}

TEST(RandomStream, SeedsStreamsAndPurposesDiffer) {
  const uint64_t base = RandomStream(1, RandomPurpose::kState, 0).word(0);
  EXPECT_NE(base, RandomStream(2, RandomPurpose::kState, 0).word(0));
  EXPECT_NE(base, RandomStream(uint64_t{1} << 40, RandomPurpose::kState, 0).word(0));
  EXPECT_NE(base, RandomStream(1, RandomPurpose::kSplit, 0).word(0));
  EXPECT_NE(base, RandomStream(1, RandomPurpose::kState, 1).word(0));
  EXPECT_EQ(base, RandomStream(1, RandomPurpose::kState, 0).word(0));
}

TEST(Permutation, HoldsEveryNumberOnceAndIsUniform) {
  constexpr size_t kCount = 6;
  std::array<std::array<int, kCount>, kCount> seen{};
  constexpr uint32_t kRounds = 6000;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const auto order = permutation(RandomStream(9, RandomPurpose::kEpoch, i), kCount);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (uint32_t k = 0; k < kCount; ++k) {
      ASSERT_EQ(sorted[k], k);
      ++seen[k][order[k]];
    }
  }
  for (const auto& row : seen) {
    for (const int count : row) {
      EXPECT_NEAR(count, kRounds / kCount, 5 * std::sqrt(double{kRounds} / kCount));
    }
  }
  EXPECT_TRUE(permutation(RandomStream(9, RandomPurpose::kEpoch, 0), 0).empty());
}

}  // namespace
}  // namespace tpu::driver
