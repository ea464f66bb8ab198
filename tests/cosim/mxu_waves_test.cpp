// Dumping waves must not disturb the array: tiles before, inside and after a wave window keep their
// bits and cycles.
#include <gtest/gtest.h>

#include <filesystem>

#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_job_source.hpp"

namespace tpu::model {
namespace {

TEST(MxuWaves, TilesBehindAWaveWindowKeepBitsAndCycles) {
  const spec::MxuShape shape;
  const auto engine =
      make_mxu_engine({.kind = "rtl", .simd = "scalar", .shape = shape, .lockstep = {}});
  auto& rtl = dynamic_cast<MxuRtlEngine&>(*engine);
  MxuScalarEngine reference(shape);
  const std::string path = ::testing::TempDir() + "/window.fst";
  rtl.set_wave_window(
      {.path = path, .depth = 1, .clock_hz = 940'000'000, .first_tile = 1, .tiles = 2});
  uint64_t cycles = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const test::OwnedJob owned =
        test::packed_job({.rows = 5, .k = 128, .n = 40}, seed, test::Values::kNormal);
    std::vector<uint32_t> got = owned.out;
    std::vector<uint32_t> wanted = owned.out;
    rtl.run(owned.on(got));
    reference.run(owned.on(wanted));
    EXPECT_EQ(got, wanted) << "tile " << seed;
    if (seed == 0) {
      cycles = rtl.last_cycles().done_at;
    }
    EXPECT_EQ(rtl.last_cycles().done_at, cycles) << "tile " << seed;
  }
  EXPECT_EQ(rtl.wave_error(), "");
  EXPECT_GT(std::filesystem::file_size(path), 1000U);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tpu::model
