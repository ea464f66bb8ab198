// Commands of few terms have kernels of their own, which leave out most of the +0 that the number
// semantics add: same bits for any number of taps and terms, also where sums are -0.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::expect_same;
using test::OwnedJob;
using test::Values;

// Terms of each of `taps`, side by side.
OwnedJob tapped_job(int64_t rows, int64_t taps, int64_t terms, int64_t n, uint64_t seed,
                    Values values) {
  OwnedJob owned = test::packed_job({.rows = rows,
                                     .k = taps * terms,
                                     .n = n,
                                     .lhs_bf16 = seed % 5 == 4,
                                     .rhs_bf16 = seed % 3 == 2,
                                     .accumulate = seed % 2 == 1},
                                    seed, values);
  MxuJob& job = owned.job;
  job.k_count[2] = terms;
  job.t_count[2] = taps;
  job.t_lhs_stride[2] = terms * job.lhs_element();
  job.t_rhs_stride[2] = terms * n * job.rhs_element();
  return owned;
}

// Up to more segments than a K block has, more terms than the kernels take, and rows and columns
// that are not whole blocks.
TEST(MxuShort, MatchesReferenceForAnyTapsAndTerms) {
  constexpr int64_t kRows[] = {1, 2, 3, 4, 23, 24, 25, 50, 97};
  constexpr int64_t kColumns[] = {16, 128, 48, 64, 20, 200, 8, 32};
  uint64_t seed = 0;
  for (const Values values : {Values::kNormal, Values::kSpecial, Values::kUnderflow}) {
    for (const int64_t taps : {1, 2, 3, 4, 5, 8, 9, 17}) {
      for (int64_t terms = 1; terms <= 14; ++terms) {
        ++seed;
        expect_same(tapped_job(kRows[seed % std::size(kRows)], taps, terms,
                               kColumns[seed % std::size(kColumns)], seed, values),
                    std::to_string(taps) + " taps of " + std::to_string(terms) + ", seed " +
                        std::to_string(seed));
      }
    }
    for (int64_t terms = 15; terms <= 40; ++terms) {
      ++seed;
      expect_same(tapped_job(kRows[seed % std::size(kRows)], 1, terms, 128, seed, values),
                  std::to_string(terms) + " terms, seed " + std::to_string(seed));
    }
  }
}

// Images of one channel: rows of lhs overlap.
TEST(MxuShort, MatchesReferenceOnWindowsOfOneChannel) {
  for (const int64_t side : {1, 2, 3, 4, 5}) {
    constexpr int64_t kImage = 19;
    constexpr int64_t kOut = 128;
    const int64_t out_side = kImage - side + 1;
    OwnedJob owned =
        test::packed_job({.rows = kImage * kImage, .k = 1, .n = kOut}, 1, Values::kSpecial);
    const OwnedJob weights =
        test::packed_job({.rows = 1, .k = side * side, .n = kOut}, 2, Values::kSpecial);
    owned.rhs = weights.rhs;
    MxuJob& job = owned.job;
    job.rhs = owned.rhs.data();
    job.m_count = {1, 1, out_side, out_side};
    job.m_lhs_stride = {0, 0, kImage * 4, 4};
    job.m_out_stride = {0, 0, out_side * kOut * 4, kOut * 4};
    job.t_count[2] = side;
    job.t_lhs_stride[2] = kImage * 4;
    job.t_rhs_stride[2] = side * kOut * 4;
    job.k_count[2] = side;
    expect_same(owned, "side " + std::to_string(side));
  }
}

// Both chains, sums and results flush to -0 or begin there: zeros of both signs come out before the
// last +0 and none of them is -0 behind it.
TEST(MxuShort, ZerosOfBothSigns) {
  constexpr float kFactors[] = {0x1p-70F, -0x1p-70F, -0x1p-63F, 0x1.8p-63F, 0.0F, -0.0F};
  constexpr float kStarts[] = {0.0F, -0.0F, -0x1.cp-126F, -0x1p-130F};
  int64_t zeros = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 rng(seed);
    const auto taps = static_cast<int64_t>(1 + seed % 4);
    const int64_t terms = taps == 1 ? 1 + static_cast<int64_t>(seed / 4) * 2 : 1 + seed / 4 % 5;
    OwnedJob owned = tapped_job(30, taps, terms, 128, seed * 30 + seed % 2, Values::kNormal);
    const auto refill = [&](std::vector<uint8_t>& bytes) {
      for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
        std::memcpy(&bytes[i], &kFactors[rng() % std::size(kFactors)], sizeof(float));
      }
    };
    refill(owned.lhs);
    refill(owned.rhs);
    for (uint32_t& out : owned.out) {
      std::memcpy(&out, &kStarts[rng() % std::size(kStarts)], sizeof out);
    }
    expect_same(owned, "seed " + std::to_string(seed));
    std::vector<uint32_t> out = owned.out;
    MxuScalarEngine(spec::MxuShape{}).run(owned.on(out));
    EXPECT_EQ(std::count(out.begin(), out.end(), 0x80000000U), 0);
    zeros += std::count(out.begin(), out.end(), 0U);
  }
  EXPECT_GT(zeros, 10000);
}

// One value for all elements.
void set_all(std::vector<uint8_t>& bytes, float value) {
  for (size_t i = 0; i + sizeof value <= bytes.size(); i += sizeof value) {
    std::memcpy(&bytes[i], &value, sizeof value);
  }
}

// Every chain, sum and result is a flushed -0 until the semantics add +0: for terms beyond K or for
// empty segments, which tiles of few rows do not have.
TEST(MxuShort, OnlyTheLawMakesZerosPositive) {
  const auto expect_zeros = [](int64_t k, int64_t n, uint16_t rows) {
    OwnedJob owned =
        test::packed_job({.rows = 9, .k = k, .n = n, .accumulate = true}, 1, Values::kNormal);
    set_all(owned.lhs, 0x1p-70F);
    set_all(owned.rhs, -0x1p-70F);
    std::fill(owned.out.begin(), owned.out.end(), 0x80000000U);
    spec::MxuShape shape;
    shape.rows = rows;
    expect_same(owned, std::to_string(k) + " terms, tiles of " + std::to_string(rows), shape);
  };
  for (const int64_t n : {16, 20, 48, 64}) {
    for (int64_t k = 93; k <= 130; ++k) {
      expect_zeros(k, n, 128);
    }
    for (const int64_t k : {3, 12, 25, 31, 32, 33, 40, 63, 64, 70}) {
      expect_zeros(k, n, 32);
      expect_zeros(k, n, 64);
    }
  }
}

// The last K block is short, and panels before it are done by the kernel that skips zeros.
TEST(MxuShort, BehindPanelsWhoseZerosAreSkipped) {
  std::mt19937_64 rng(3);
  for (const int64_t n : {80, 96, 144, 208}) {
    for (const int64_t taps : {1, 16}) {
      OwnedJob owned = tapped_job(60, taps, taps == 1 ? 266 : 5, n, 30, Values::kNormal);
      for (size_t i = 0; i + sizeof(float) <= owned.lhs.size(); i += sizeof(float)) {
        if (rng() % 16 != 0) {
          std::memset(&owned.lhs[i], 0, sizeof(float));
        }
      }
      expect_same(owned, std::to_string(n) + " columns, " + std::to_string(taps) + " taps");
    }
  }
}

// Results that are stored around the caches, where rows are whole lines; the others beside them.
TEST(MxuShort, ManyResults) {
  for (const int64_t taps : {1, 3}) {
    for (const int64_t pitch : {128, 144, 136}) {
      OwnedJob owned = tapped_job(2100, taps, 3, 128, 6, Values::kSpecial);
      owned.out.resize(static_cast<size_t>(2100 * pitch + 16), 0x3f800000U);
      const auto first = reinterpret_cast<uintptr_t>(owned.out.data());
      owned.job.out = reinterpret_cast<uint8_t*>(owned.out.data()) + (first + 63) / 64 * 64 - first;
      owned.job.m_out_stride[3] = pitch * 4;
      expect_same(owned, std::to_string(taps) + " taps, pitch " + std::to_string(pitch));
    }
  }
}

}  // namespace
}  // namespace tpu::model
