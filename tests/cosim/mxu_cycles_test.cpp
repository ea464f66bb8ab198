// The cycle law of the matrix unit against the Verilated 128x128 array's own count, exactly: every
// tile's start and the end of the command, for rows below, at and above the hidden weight load and
// for up to 7 accumulated K tiles.
#include <gtest/gtest.h>

#include "mxu/mxu_rtl.hpp"
#include "mxu_job_source.hpp"

namespace tpu {
namespace {

void expect_equal_cycles(model::MxuRtlEngine& rtl, const test::PackedShape& size) {
  const test::OwnedJob owned = test::packed_job(size, 1, test::Values::kNormal);
  std::vector<uint32_t> out = owned.out;
  rtl.run(owned.on(out));
  const auto law = spec::mxu_command_timing(rtl.shape(), model::mxu_extent(owned.job));
  const model::MxuRtlCycles measured = rtl.last_cycles();
  const auto what = [&size] {
    return std::to_string(size.rows) + " rows, K " + std::to_string(size.k) + ", N " +
           std::to_string(size.n);
  };
  ASSERT_EQ(measured.starts.size(), law.tiles()) << what();
  for (size_t i = 0; i < law.tiles(); ++i) {
    ASSERT_EQ(measured.starts[i], law.start(i)) << what() << ", tile " << i;
  }
  EXPECT_EQ(measured.done_at, law.done_at) << what();
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

INSTANTIATE_TEST_SUITE_P(Skews, MxuCycles, testing::Values(1u, 18u));

}  // namespace
}  // namespace tpu
