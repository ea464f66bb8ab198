// Dumping waves must not disturb the array: tiles before, inside and after a wave window keep their
// bits and cycles. The file shows the unit's place on the board, its tiles and their operations,
// and who gets no file is told why.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "fst_reader.hpp"
#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_lockstep.hpp"
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

// Values that a signal takes, in order.
std::vector<uint64_t> values_of(const std::string& path, const std::string& signal) {
  const test::WaveChanges changes = test::read_fst(path);
  std::vector<uint64_t> values;
  for (const test::WaveChange& change : changes.at("board.chip0.core1.mxu0." + signal)) {
    if (change.value.find_first_not_of("01") == std::string::npos) {
      values.push_back(std::stoull(change.value, nullptr, 2));
    }
  }
  return values;
}

std::unique_ptr<MxuEngine> make(const std::string& kind) {
  return make_mxu_engine({.kind = kind,
                          .simd = "scalar",
                          .shape = {},
                          .path = "board.chip0.core1.mxu0",
                          .lockstep = {}});
}

MxuWaveWindow window(const std::string& name, uint64_t first_tile, uint64_t tiles) {
  return {.path = ::testing::TempDir() + "/" + name,
          .depth = 1,
          .clock_hz = 940'000'000,
          .first_tile = first_tile,
          .tiles = tiles};
}

// Commands of 2 tiles, ops 10, 11, 12; of the lockstep engine each second tile goes through the
// Verilog.
TEST(MxuWaves, ShowsThePathTheTilesAndTheirOperations) {
  for (const bool lockstep : {false, true}) {
    const auto engine = make(lockstep ? "lockstep:1/2" : "rtl");
    const MxuWaveWindow tiles = window("marks.fst", 0, lockstep ? 3 : 6);
    if (lockstep) {
      dynamic_cast<MxuLockstepEngine&>(*engine).set_wave_window(tiles);
    } else {
      dynamic_cast<MxuRtlEngine&>(*engine).set_wave_window(tiles);
    }
    for (uint32_t op = 10; op < 13; ++op) {
      test::OwnedJob owned =
          test::packed_job({.rows = 4, .k = 20, .n = 130}, op, test::Values::kNormal);
      owned.job.op_id = op;
      owned.job.start_cycle = 1000 * op;
      engine->run(owned.job);
    }
    EXPECT_FALSE(values_of(tiles.path, "y_valid_o").empty());
    EXPECT_EQ(values_of(tiles.path, "tile"), lockstep ? (std::vector<uint64_t>{0, 2, 4})
                                                      : (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(values_of(tiles.path, "op_id"), (std::vector<uint64_t>{10, 11, 12}));
    std::filesystem::remove(tiles.path);
  }
}

TEST(MxuWaves, AWindowBehindTheRunIsAnError) {
  const auto engine = make("rtl");
  auto& rtl = dynamic_cast<MxuRtlEngine&>(*engine);
  rtl.set_wave_window(window("late_tiles.fst", 5, 2));
  test::OwnedJob owned = test::packed_job({.rows = 4, .k = 20, .n = 130}, 1, test::Values::kNormal);
  rtl.run(owned.job);
  const std::string error = rtl.finish_waves();
  EXPECT_NE(error.find("of the tiles 5 to 6 none came; through the Verilog went 2 tiles"),
            std::string::npos)
      << error;
}

TEST(MxuWaves, AWindowThatTheRunEndsInIsComplete) {
  const auto engine = make("rtl");
  auto& rtl = dynamic_cast<MxuRtlEngine&>(*engine);
  const MxuWaveWindow open = window("open.fst", 1, 100);
  rtl.set_wave_window(open);
  test::OwnedJob owned = test::packed_job({.rows = 4, .k = 20, .n = 130}, 1, test::Values::kNormal);
  rtl.run(owned.job);
  EXPECT_EQ(rtl.finish_waves(), "");
  EXPECT_EQ(values_of(open.path, "tile").back(), 1U);
}

TEST(MxuWaves, ASecondRunOnTheFileIsToldWhy) {
  const auto first = make("rtl"), second = make("rtl");
  auto& writer = dynamic_cast<MxuRtlEngine&>(*first);
  const MxuWaveWindow shared = window("shared_tiles.fst", 0, 100);
  writer.set_wave_window(shared);
  test::OwnedJob owned = test::packed_job({.rows = 4, .k = 20, .n = 30}, 1, test::Values::kNormal);
  writer.run(owned.job);
  try {
    dynamic_cast<MxuRtlEngine&>(*second).set_wave_window(shared);
    ADD_FAILURE() << "two writers on one file";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("is already open for writing"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(writer.finish_waves(), "");
}

// The FST library would remove it.
TEST(MxuWaves, APipeIsRefusedAndStays) {
  const MxuWaveWindow at = window("tiles.pipe", 0, 1);
  std::filesystem::remove(at.path);
  ASSERT_EQ(mkfifo(at.path.c_str(), 0600), 0);
  const auto engine = make("rtl");
  try {
    dynamic_cast<MxuRtlEngine&>(*engine).set_wave_window(at);
    ADD_FAILURE() << "waves in a pipe";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("is a device or a pipe; name a file"),
              std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(std::filesystem::is_fifo(at.path));
  std::filesystem::remove(at.path);
}

}  // namespace
}  // namespace tpu::model
