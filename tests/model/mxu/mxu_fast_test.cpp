// The fast engine gives the reference's bits on every instruction set of the host and on the
// emulated ones, for packed and strided jobs of every value class, across its block sizes.
#include "mxu/mxu_fast.hpp"

#include <gtest/gtest.h>

#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::expect_same;
using test::kAllValues;
using test::OwnedJob;
using test::Values;

TEST(MxuFast, MatchesReferenceOnPackedShapes) {
  uint64_t seed = 0;
  for (const test::PackedShape& shape :
       {test::PackedShape{.rows = 1, .k = 1, .n = 1},
        {.rows = 25, .k = 784, .n = 512},
        {.rows = 13, .k = 130, .n = 33},
        {.rows = 33, .k = 96, .n = 47, .lhs_bf16 = true},
        {.rows = 31, .k = 31, .n = 129, .rhs_bf16 = true, .accumulate = true},
        {.rows = 70, .k = 257, .n = 64, .lhs_bf16 = true, .rhs_bf16 = true},
        {.rows = 20, .k = 512, .n = 70, .lhs_bf16 = true},
        {.rows = 64, .k = 1100, .n = 96, .accumulate = true}}) {
    for (const Values values : kAllValues) {
      ++seed;
      expect_same(test::packed_job(shape, seed, values), "seed " + std::to_string(seed));
    }
  }
}

// Each height and width of a kernel's block, with whole segments, short ones of few and of more
// terms, and empty ones behind.
TEST(MxuFast, MatchesReferenceOnEveryBlockShape) {
  uint64_t seed = 0;
  for (int64_t rows = 1; rows <= 7; ++rows) {
    for (const int64_t n : {8, 13, 16, 20, 32, 40, 48, 60, 64}) {
      for (const int64_t k : {1, 2, 3, 12, 13, 32, 40, 128}) {
        for (const Values values : {Values::kSpecial, Values::kUnderflow}) {
          const bool accumulate = ++seed / 2 % 2 == 0;
          const test::PackedShape shape{.rows = rows, .k = k, .n = n, .accumulate = accumulate};
          expect_same(test::packed_job(shape, seed, values), "seed " + std::to_string(seed));
        }
      }
    }
  }
}

TEST(MxuFast, MatchesReferenceAcrossRowAndPanelBlocks) {
  expect_same(test::packed_job({.rows = 530, .k = 40, .n = 70}, 1, Values::kNormal), "rows");
  expect_same(test::packed_job({.rows = 5, .k = 40, .n = 1100}, 2, Values::kNormal), "panels");
  expect_same(test::packed_job({.rows = 40, .k = 2304, .n = 40}, 3, Values::kNormal), "segments");
  expect_same(test::packed_job({.rows = 250, .k = 1300, .n = 600}, 4, Values::kNormal), "all");
  expect_same(
      test::packed_job({.rows = 450, .k = 290, .n = 150, .accumulate = true}, 5, Values::kSpecial),
      "all, accumulated");
}

TEST(MxuFast, MatchesReferenceOnStridedJobs) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    expect_same(test::strided_job(seed, kAllValues[seed % 5]), "seed " + std::to_string(seed));
  }
}

TEST(MxuFast, MatchesReferenceOnTransposedWeights) {
  for (const bool bf16 : {false, true}) {
    OwnedJob owned =
        test::packed_job({.rows = 40, .k = 200, .n = 72, .rhs_bf16 = bf16}, 5, Values::kSpecial);
    test::transpose_rhs(owned);
    expect_same(owned, bf16 ? "bf16" : "f32");
  }
}

// K is cut at odd places and short inner runs of columns share a panel.
TEST(MxuFast, MatchesReferenceOnOverlappingTaps) {
  uint64_t seed = 0;
  for (const bool bf16 : {false, true}) {
    for (const int64_t channels : {1, 3, 20, 33, 130, 160}) {
      for (const Values values : kAllValues) {
        OwnedJob owned = test::window_job(
            {.side = 7, .channels = channels, .out = 23, .bf16 = bf16}, ++seed, values);
        expect_same(owned, "seed " + std::to_string(seed));
        MxuJob& job = owned.job;
        job.n_count = {4, 3};
        job.n_rhs_stride = {5 * job.rhs_element(), job.rhs_element()};
        job.n_out_stride = {5 * 4, 4};
        expect_same(owned, "short runs, seed " + std::to_string(seed));
      }
    }
  }
}

TEST(MxuFast, RowSplitsGiveTheSameBits) {
  const OwnedJob owned = test::packed_job({.rows = 100, .k = 300, .n = 50}, 6, Values::kNormal);
  for (const test::KernelSet& set : test::kernel_sets()) {
    MxuFastEngine engine(spec::MxuShape{}, set.kernels);
    std::vector<uint32_t> whole = owned.out;
    engine.run(owned.on(whole));
    std::vector<uint32_t> parts = owned.out;
    for (const MxuJob& part : mxu_split_rows(owned.on(parts), 3)) {
      engine.run(part);
    }
    EXPECT_EQ(parts, whole) << set.name;
  }
}

TEST(MxuFast, SerialLawRunsOnTheReference) {
  const spec::MxuShape serial{.sums = spec::MxuSums::kSerial};
  const OwnedJob owned = test::packed_job({.rows = 9, .k = 300, .n = 20}, 7, Values::kNormal);
  MxuScalarEngine reference(serial);
  std::vector<uint32_t> wanted = owned.out;
  reference.run(owned.on(wanted));
  for (const test::KernelSet& set : test::kernel_sets()) {
    std::vector<uint32_t> got = owned.out;
    MxuFastEngine(serial, set.kernels).run(owned.on(got));
    EXPECT_EQ(got, wanted);
  }
}

TEST(MxuFast, UnknownSimdNamesTheHosts) {
  EXPECT_THROW(static_cast<void>(mxu_simd_from_name("sse9")), std::runtime_error);
  EXPECT_EQ(mxu_simd_from_name("scalar"), MxuSimd::kScalar);
  EXPECT_EQ(mxu_simd_from_name("auto"), base::host_simd().back());
}

}  // namespace
}  // namespace tpu::model
