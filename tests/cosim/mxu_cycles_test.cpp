// The cycle formulas of the matrix unit against the Verilated 128x128 array's own count, exactly:
// every tile's start and the end of the command, for rows below, at and above the hidden weight
// load, for up to 7 accumulated K tiles, and for windows of several taps.
#include <gtest/gtest.h>

#include "mxu/mxu_rtl.hpp"
#include "mxu_job_source.hpp"

namespace tpu {
namespace {

void expect_equal_cycles(model::MxuRtlEngine& rtl, const test::OwnedJob& owned) {
  std::vector<uint32_t> out = owned.out;
  rtl.run(owned.on(out));
  const auto expected = spec::mxu_command_timing(rtl.shape(), model::mxu_extent(owned.job));
  const model::MxuRtlCycles measured = rtl.last_cycles();
  const auto what = [&job = owned.job] {
    return std::to_string(job.rows()) + " rows, " + std::to_string(job.taps()) + " taps, K " +
           std::to_string(job.k()) + ", N " + std::to_string(job.n_count[0]) + " x " +
           std::to_string(job.n_count[1]);
  };
  ASSERT_EQ(measured.starts.size(), expected.tiles()) << what();
  for (size_t i = 0; i < expected.tiles(); ++i) {
    ASSERT_EQ(measured.starts[i], expected.start(i)) << what() << ", tile " << i;
  }
  EXPECT_EQ(measured.done_at, expected.done_at) << what();
}

void expect_equal_cycles(model::MxuRtlEngine& rtl, const test::PackedShape& size) {
  expect_equal_cycles(rtl, test::packed_job(size, 1, test::Values::kNormal));
}

class MxuCycles : public testing::TestWithParam<uint32_t> {};

TEST_P(MxuCycles, LawEqualsTheArraysCount) {
  model::MxuRtlEngine rtl(model::make_rtl_array({.skew = GetParam()}));
  int shapes = 0;
  for (const int64_t rows : {1, 25, 82, 128, 200}) {
    for (const int64_t k_tiles : {1, 2, 3, 5, 7}) {
      const int64_t n = k_tiles <= 3 ? 130 * (1 + k_tiles % 2) : 100;
      expect_equal_cycles(rtl, {.rows = rows, .k = 128 * k_tiles - 9, .n = n});
      ++shapes;
    }
  }
  for (const int64_t rows : {64, 81, 83, 132, 133, 134, 199, 201}) {
    expect_equal_cycles(rtl, {.rows = rows, .k = 200, .n = 129});
    ++shapes;
  }
  EXPECT_GE(shapes, 30);
}

// K tiles and N tiles never span two taps: few rows wait for the running value of the tap before,
// many do not.
TEST_P(MxuCycles, LawEqualsTheArraysCountForSeveralTaps) {
  model::MxuRtlEngine rtl(model::make_rtl_array({.skew = GetParam()}));
  for (const test::WindowShape& window :
       {test::WindowShape{.side = 4, .channels = 8, .out = 40},
        test::WindowShape{.side = 14, .channels = 130, .out = 16, .bf16 = true},
        test::WindowShape{.side = 6, .channels = 20, .out = 300}}) {
    expect_equal_cycles(rtl, test::window_job(window, 1, test::Values::kNormal));
  }
  int taps = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const test::OwnedJob owned = test::strided_job(seed, test::Values::kNormal);
    expect_equal_cycles(rtl, owned);
    taps += owned.job.taps() > 1 ? 1 : 0;
  }
  EXPECT_GE(taps, 4);
}

INSTANTIATE_TEST_SUITE_P(Skews, MxuCycles, testing::Values(1u, 18u));

}  // namespace
}  // namespace tpu
