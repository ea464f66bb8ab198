// Jobs that the tile kernels (AMX) cut in their own ways: rows by even distances, lhs in place or
// from a rounded range, K in pieces. On every instruction set of the host and on the emulated ones.
#include <gtest/gtest.h>

#include <utility>

#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::expect_same;
using test::kAllValues;
using test::OwnedJob;
using test::PackedShape;
using test::Values;

// Heights and widths about those of a tile, terms about those of a segment.
TEST(MxuTiles, MatchReferenceAboutTheirSize) {
  uint64_t seed = 0;
  for (const int64_t rows : {1, 16, 17, 25, 33}) {
    for (const int64_t n : {9, 16, 17, 32, 33, 130}) {
      for (const int64_t k : {9, 32, 33, 96, 100}) {
        ++seed;
        const PackedShape shape{.rows = rows,
                                .k = k,
                                .n = n,
                                .lhs_bf16 = seed % 2 != 0,
                                .rhs_bf16 = seed / 2 % 2 != 0,
                                .accumulate = seed / 4 % 2 != 0};
        OwnedJob owned = test::packed_job(shape, seed, kAllValues[seed % 5]);
        expect_same(owned, "seed " + std::to_string(seed));
        test::transpose_rhs(owned);
        expect_same(owned, "transposed, seed " + std::to_string(seed));
      }
    }
  }
}

// With few rows K comes in pieces, with more it is one; beyond 512 segments it is two.
TEST(MxuTiles, MatchReferenceOnLongK) {
  uint64_t seed = 0;
  for (const auto& [rows, k] :
       {std::pair<int64_t, int64_t>{25, 4096}, {33, 1056}, {70, 4096}, {70, 16416}}) {
    for (const bool lhs_bf16 : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const PackedShape shape{
            .rows = rows, .k = k, .n = 33, .lhs_bf16 = lhs_bf16, .accumulate = accumulate};
        ++seed;
        expect_same(test::packed_job(shape, seed, kAllValues[seed % 5]),
                    "seed " + std::to_string(seed));
      }
    }
  }
}

// Taps of lhs that follow each other, so that K is as long as all of them.
OwnedJob tapped_job(const PackedShape& s, int64_t taps, uint64_t seed, Values values) {
  OwnedJob owned = test::packed_job({s.rows, taps * s.k, s.n, s.lhs_bf16, s.rhs_bf16, s.accumulate},
                                    seed, values);
  MxuJob& job = owned.job;
  job.k_count[2] = s.k;
  job.t_count[2] = taps;
  job.t_lhs_stride[2] = s.k * job.lhs_element();
  job.t_rhs_stride[2] = s.k * s.n * job.rhs_element();
  return owned;
}

TEST(MxuTiles, MatchReferenceOnTaps) {
  uint64_t seed = 0;
  for (const int64_t rows : {17, 70}) {
    for (const int64_t k : {25, 32, 96, 1024}) {
      for (const bool bf16 : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const PackedShape shape{.rows = rows,
                                  .k = k,
                                  .n = 40,
                                  .lhs_bf16 = bf16,
                                  .rhs_bf16 = bf16,
                                  .accumulate = accumulate};
          ++seed;
          expect_same(tapped_job(shape, 4, seed, kAllValues[seed % 5]),
                      "seed " + std::to_string(seed));
        }
      }
    }
  }
}

// Rows of windows lie evenly apart by runs of rows of the image.
TEST(MxuTiles, MatchReferenceOnWindowsOfWholeSegments) {
  uint64_t seed = 0;
  for (const int64_t side : {5, 11, 20, 35}) {
    for (const int64_t channels : {32, 96, 160}) {
      for (const bool bf16 : {false, true}) {
        ++seed;
        OwnedJob owned =
            test::window_job({.side = side, .channels = channels, .out = 17, .bf16 = bf16}, seed,
                             kAllValues[seed % 5]);
        owned.job.accumulate = seed / 2 % 2 != 0;
        expect_same(owned, "seed " + std::to_string(seed));
      }
    }
  }
}

// More than packed rhs of all columns has room for at once.
TEST(MxuTiles, MatchReferenceOnColumnsOfSeveralBlocks) {
  for (const bool bf16 : {false, true}) {
    expect_same(
        test::packed_job({.rows = 40, .k = 2304, .n = 300, .lhs_bf16 = bf16}, 1, Values::kNormal),
        "long");
    expect_same(
        test::packed_job({.rows = 40, .k = 64, .n = 1100, .lhs_bf16 = bf16}, 2, Values::kNormal),
        "short");
  }
}

TEST(MxuTiles, RowsOfLhsLieUnevenly) {
  constexpr int64_t kTerms = 64;
  uint64_t seed = 0;
  for (const bool bf16 : {false, true}) {
    for (const auto& [outer, inner] :
         {std::pair<int64_t, int64_t>{20, 2}, {20, 1}, {3, 9}, {2, 16}, {2, 33}, {3, 40}}) {
      for (const int64_t gap : {1, 2, 32}) {  // 1: bf16 rows lie odd elements apart
        ++seed;
        OwnedJob owned = test::packed_job({.rows = (outer + 1) * inner * 2,
                                           .k = kTerms,
                                           .n = 48,
                                           .lhs_bf16 = bf16,
                                           .accumulate = gap == 2},
                                          seed, kAllValues[seed % 5]);
        MxuJob& job = owned.job;
        const int64_t e = job.lhs_element();
        job.m_count = {1, 1, outer, inner};
        job.m_lhs_stride = {0, 0, (inner * kTerms + gap) * e, kTerms * e};
        job.m_out_stride = {0, 0, inner * 48 * 4, 48 * 4};
        expect_same(owned, "seed " + std::to_string(seed));
        job.m_lhs_stride[3] = -kTerms * e;
        job.lhs += (inner - 1) * kTerms * e;
        expect_same(owned, "backwards, seed " + std::to_string(seed));
        job.m_lhs_stride = {0, 0, gap * e, 0};
        expect_same(owned, "the same row, seed " + std::to_string(seed));
      }
    }
  }
}

// In-place tile loads need no alignment beyond an element's.
TEST(MxuTiles, LhsBeginsAnywhere) {
  for (const int64_t elements : {1, 2, 17}) {
    OwnedJob owned =
        test::packed_job({.rows = 40, .k = 64, .n = 40, .lhs_bf16 = true}, 1, Values::kSpecial);
    owned.job.lhs += elements * 2;
    owned.job.m_count[3] = 38;
    expect_same(owned, std::to_string(elements) + " elements on");
  }
}

TEST(MxuTiles, ColumnsAndTermsOfRhsLieApart) {
  constexpr int64_t kTerms = 72;
  constexpr int64_t kColumns = 60;
  uint64_t seed = 0;
  for (const bool bf16 : {false, true}) {
    for (const bool transposed : {false, true}) {
      OwnedJob owned = test::packed_job({.rows = 35, .k = kTerms, .n = kColumns, .rhs_bf16 = bf16},
                                        ++seed, Values::kSpecial);
      MxuJob& job = owned.job;
      if (transposed) {
        test::transpose_rhs(owned);
      }
      const int64_t column = job.n_rhs_stride[1];
      job.n_count = {12, 5};
      job.n_rhs_stride = {5 * column, column};
      job.n_out_stride = {5 * 4, 4};
      expect_same(owned, "lists of columns");
      job.n_rhs_stride = {column, 12 * column};
      expect_same(owned, "lists of columns in another order");
      const int64_t term = job.k_rhs_stride[2];
      job.k_count = {2, 12, 3};
      job.k_rhs_stride = {3 * term, 6 * term, term};
      expect_same(owned, "terms in another order");
      job.n_count = {1, kColumns};
      job.n_rhs_stride[1] = column;
      job.n_out_stride[1] = 4;
      expect_same(owned, "terms in another order, columns in theirs");
    }
  }
}

// Results of a megabyte are stored around the caches, where rows are aligned.
TEST(MxuTiles, MatchReferenceOnManyResultsOfFewTerms) {
  for (const int64_t n : {128, 130}) {
    for (const bool accumulate : {false, true}) {
      expect_same(test::packed_job({.rows = 2100, .k = 25, .n = n, .accumulate = accumulate}, 1,
                                   Values::kSpecial),
                  "n " + std::to_string(n));
    }
  }
}

TEST(MxuTiles, PartsOfRowsGiveTheSameBits) {
  for (const bool bf16 : {false, true}) {
    const OwnedJob owned = test::window_job({.side = 19, .channels = 64, .out = 40, .bf16 = bf16},
                                            9, Values::kSpecial);
    for (const test::KernelSet& set : test::kernel_sets()) {
      MxuFastEngine engine(spec::MxuShape{}, set.kernels);
      std::vector<uint32_t> whole = owned.out;
      engine.run(owned.on(whole));
      for (const int64_t parts : {2, 7, 100}) {
        std::vector<uint32_t> got = owned.out;
        for (const MxuJob& part : mxu_split_rows(owned.on(got), parts)) {
          engine.run(part);
        }
        EXPECT_EQ(got, whole) << set.name << ", " << parts << " parts";
      }
    }
  }
}

// Running values of -0 and sums of -0: taps that end with empty segments add +0, others do not.
TEST(MxuTiles, SumsOfMinusZeroMeetEmptySegments) {
  constexpr uint32_t kTiny = 0x1c800000U;  // 2^-70: its square underflows
  constexpr uint32_t kMinus = 0x80000000U;
  for (const int64_t k : {32, 96, 128, 160}) {
    for (const bool bf16 : {false, true}) {
      OwnedJob owned =
          tapped_job({.rows = 20, .k = k, .n = 20, .lhs_bf16 = bf16, .accumulate = true}, 3, 1,
                     Values::kNormal);
      const size_t e = bf16 ? 2 : 4;
      for (size_t i = 0; i < owned.lhs.size(); i += e) {
        const uint32_t bits = kTiny >> (bf16 ? 16 : 0);
        std::memcpy(&owned.lhs[i], &bits, e);
      }
      for (size_t i = 0; i < owned.rhs.size(); i += 4) {
        const uint32_t bits = kTiny | kMinus;
        std::memcpy(&owned.rhs[i], &bits, 4);
      }
      std::fill(owned.out.begin(), owned.out.end(), kMinus);
      expect_same(owned, "k " + std::to_string(k));
      std::vector<uint32_t> out = owned.out;
      MxuScalarEngine(spec::MxuShape{}).run(owned.on(out));
      EXPECT_EQ(out[0], k == 128 ? kMinus : 0U);
    }
  }
}

}  // namespace
}  // namespace tpu::model
