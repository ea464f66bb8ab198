// The closed form of a command's tile starts against the recurrence, and the published constants of
// the array. That the recurrence equals the Verilog is tested in tests/cosim.
#include "arith/mxu_timing.hpp"

#include <gtest/gtest.h>

namespace tpu::spec {
namespace {

TEST(MxuTiming, ConstantsOfTheFullArray) {
  const MxuShape skew18{};
  const MxuShape skew1{.skew = 1};
  EXPECT_EQ(mxu_load_cycles(skew18), 64u);
  EXPECT_EQ(mxu_load_cycles(MxuShape{.load_rows = 1}), 128u);
  EXPECT_EQ(mxu_latency(skew18), 200u);
  EXPECT_EQ(mxu_latency(skew1), 149u);
  EXPECT_EQ(mxu_swap_gap(skew18), 69u);
  EXPECT_EQ(mxu_swap_gap(skew1), 18u);
  EXPECT_EQ(mxu_interval(skew18, 128), 133u);
  EXPECT_EQ(mxu_interval(skew1, 25), 82u);
  EXPECT_EQ(mxu_latency(MxuShape{.rows = 32, .cols = 32, .skew = 1}), 50u);
}

TEST(MxuTiming, FortyTilesBackToBack) {
  const MxuExtent extent{.rows = 128, .k = 128, .n_inner = 40 * 128};
  EXPECT_EQ(mxu_command_timing(MxuShape{.skew = 1}, extent).done_at, 5333u);
  EXPECT_EQ(mxu_command_timing(MxuShape{}, extent).done_at, 64u + 39 * 133 + 128 + 200);
}

TEST(MxuTiming, ClosedFormEqualsTheRecurrence) {
  for (const uint32_t skew : {1u, 18u}) {
    const MxuShape shape{.skew = skew};
    for (const uint64_t rows : {1, 25, 81, 82, 83, 128, 133, 200, 201, 1000}) {
      for (uint64_t k_tiles = 1; k_tiles <= 5; ++k_tiles) {
        for (uint64_t n_tiles = 1; n_tiles <= 4; ++n_tiles) {
          std::vector<MxuTileRef> tiles;
          for (size_t i = 0; i < k_tiles * n_tiles; ++i) {
            tiles.push_back({rows, i >= n_tiles ? i - n_tiles : MxuTileRef::kNone});
          }
          const auto starts = mxu_tile_starts(shape, tiles);
          const auto timing = mxu_command_timing(
              shape, {.rows = rows, .k = k_tiles * 128 - 5, .n_inner = n_tiles * 128 - 100});
          ASSERT_EQ(timing.tiles(), tiles.size());
          for (size_t i = 0; i < tiles.size(); ++i) {
            ASSERT_EQ(timing.start(i), starts[i]) << rows << " " << k_tiles << " " << n_tiles;
          }
          EXPECT_EQ(timing.done_at, starts.back() + rows + mxu_latency(shape));
          // The next command's first tile keeps its distance to this one's last.
          EXPECT_EQ(timing.free_at + timing.load, starts.back() + mxu_interval(shape, rows));
        }
      }
    }
  }
}

TEST(MxuTiming, TilesNeverSpanTapsOrOuterColumns) {
  const auto timing = mxu_command_timing(
      MxuShape{}, {.rows = 8, .taps = 9, .k = 130, .n_outer = 3, .n_inner = 129});
  EXPECT_EQ(timing.k_tiles, 18u);
  EXPECT_EQ(timing.n_tiles, 6u);
}

TEST(MxuShape, RefusesImpossibleShapes) {
  EXPECT_FALSE(mxu_shape_error(MxuShape{}));
  EXPECT_TRUE(mxu_shape_error(MxuShape{.rows = 100}));
  EXPECT_TRUE(mxu_shape_error(MxuShape{.skew = 0}));
}

}  // namespace
}  // namespace tpu::spec
