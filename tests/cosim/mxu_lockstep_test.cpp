// Lockstep of the fast engine with the Verilated 128x128 array over a thousand tiles, and its
// behaviour on a mismatch: an engine with a planted fault must be found, located to the K step,
// dumped and replayed.
#include "mxu/mxu_lockstep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_job_source.hpp"
#include "replay/mxu_replay.hpp"

namespace tpu::model {
namespace {

using test::OwnedJob;
using test::Values;

constexpr Values kAllValues[] = {Values::kNormal, Values::kSpecial, Values::kUnderflow,
                                 Values::kOverflow, Values::kAnyBits};

std::string temp(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / name).string();
}

TEST(MxuLockstep, AThousandTilesOfFastEngineAndVerilogAgree) {
  MxuEngineOptions options{.kind = "lockstep", .simd = "auto", .shape = {}, .lockstep = {}};
  options.lockstep.on_mismatch = [](const MxuMismatch& m) { ADD_FAILURE() << m.text; };
  options.lockstep.dump_prefix = temp("lockstep");
  const auto engine = make_mxu_engine(options);
  auto& lockstep = dynamic_cast<MxuLockstepEngine&>(*engine);
  uint64_t seed = 1;
  while (lockstep.counts().tiles < 1000) {
    const auto rows = static_cast<int64_t>(1 + seed * 7 % 13);
    const auto k = static_cast<int64_t>(100 + seed * 131 % 900);
    const auto n = static_cast<int64_t>(128 + seed * 57 % 400);
    OwnedJob owned = test::packed_job({rows, k, n, seed % 2 == 0, seed % 3 == 0, seed % 4 == 0},
                                      seed, kAllValues[seed % 5]);
    engine->run(owned.job);
    ++seed;
  }
  const MxuLockstepCounts counts = lockstep.counts();
  std::cout << "lockstep: " << counts.tiles << " tiles, " << counts.mismatches << " mismatches\n";
  EXPECT_EQ(counts.mismatches, 0u);
}

TEST(MxuLockstep, SamplesByTileNumberAlone) {
  MxuEngineOptions options{.kind = "lockstep:1/5", .simd = "auto", .shape = {}, .lockstep = {}};
  const auto engine = make_mxu_engine(options);
  OwnedJob owned = test::packed_job({3, 300, 300}, 1, Values::kNormal);  // 9 tiles
  std::vector<uint32_t> expected = owned.out;
  MxuScalarEngine({}).run(owned.on(expected));
  engine->run(owned.job);
  engine->run(owned.job);
  const auto counts = dynamic_cast<MxuLockstepEngine&>(*engine).counts();
  EXPECT_EQ(counts.tiles_seen, 18u);
  EXPECT_EQ(counts.tiles, 4u);  // 0, 5, 10, 15
  EXPECT_EQ(counts.mismatches, 0u);
  EXPECT_EQ(owned.out, expected);
}

// Bits that flip on purpose: the fast engine is the unit that fails, and its memory has the result.
TEST(MxuLockstep, FindsAResultWhoseBitsFlip) {
  for (const char* kind : {"lockstep", "lockstep:1/2"}) {
    std::vector<MxuMismatch> found;
    MxuEngineOptions options{.kind = kind, .simd = "auto", .shape = {}, .lockstep = {}};
    options.lockstep.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
    options.lockstep.dump_prefix = temp("upset");
    const auto engine = make_mxu_engine(options);
    OwnedJob owned = test::packed_job({3, 300, 300}, 1, Values::kNormal);
    std::vector<uint32_t> expected = owned.out;
    MxuScalarEngine({}).run(owned.on(expected));
    engine->run_upset(owned.job, {.result = 2 * 300 + 200 + 5 * 900, .mask = 1U << 30});
    ASSERT_EQ(found.size(), 1U) << kind;
    EXPECT_EQ(found[0].n_tile, 1U);
    EXPECT_EQ(found[0].row, 2U);
    EXPECT_EQ(found[0].col, 72U);
    EXPECT_TRUE(found[0].whole_command);
    EXPECT_EQ(engine->mismatch_text(), found[0].text);
    expected[2 * 300 + 200] ^= 1U << 30;
    EXPECT_EQ(owned.out, expected);
  }
}

// Drops the product of one K step in tiles that have it, in the last row.
class FaultyEngine final : public MxuEngine {
 public:
  explicit FaultyEngine(size_t bad_k) : bad_k_(bad_k) {}
  void run(const MxuJob& job) override {
    if (job.k() != 128 || !job.rhs_is_bf16) {
      good_.run(job);
      return;
    }
    std::vector<uint8_t> rhs(job.rhs, job.rhs + 128 * job.k_rhs_stride[2]);
    std::fill_n(rhs.begin() + static_cast<ptrdiff_t>(bad_k_) * job.k_rhs_stride[2],
                job.k_rhs_stride[2], uint8_t{0});
    MxuJob faulty = job;
    faulty.rhs = rhs.data();
    faulty.row_begin = job.rows() - 1;
    MxuJob rest = job;
    rest.row_end = job.rows() - 1;
    good_.run(rest);
    good_.run(faulty);
  }
  const char* name() const override { return "faulty"; }

 private:
  MxuScalarEngine good_{spec::MxuShape{}};
  const size_t bad_k_;
};

TEST(MxuLockstep, AMismatchIsLocatedDumpedAndReplayed) {
  std::vector<MxuMismatch> found;
  MxuLockstepOptions options;
  options.dump_prefix = temp("mismatch");
  options.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
  MxuLockstepEngine engine(std::make_unique<FaultyEngine>(42), make_rtl_array({}), options);
  OwnedJob owned = test::packed_job({3, 128, 128, true, true}, 9, Values::kNormal);
  engine.run(owned.job);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(engine.counts().mismatches, 1u);
  EXPECT_EQ(found[0].row, 2u);
  EXPECT_EQ(found[0].k, 42);
  EXPECT_NE(found[0].rtl_bits, found[0].engine_bits);
  EXPECT_NE(found[0].text.find("row 2, column 0, k 42: rtl 0x"), std::string::npos)
      << found[0].text;
  EXPECT_NE(found[0].text.find("tpuboard mxu-replay " + found[0].dump_path), std::string::npos);

  std::ostringstream out;
  const std::string waves = temp("replay.fst");
  const MxuReplayResult replayed = mxu_replay(found[0].dump_path, waves, 940'000'000, out);
  EXPECT_EQ(replayed.verilog, 0u);
  EXPECT_EQ(replayed.engines, 0u);
  EXPECT_EQ(replayed.recorded_verilog, 0u);
  EXPECT_GT(replayed.recorded_engine, 0u);
  EXPECT_FALSE(replayed.agree());
  EXPECT_NE(out.str().find("first: row 2, column 0: 0x"), std::string::npos) << out.str();
  EXPECT_GT(std::filesystem::file_size(waves), 1000u);
  std::filesystem::remove(waves);
  std::filesystem::remove(found[0].dump_path);
}

// Right tile by tile, wrong as a whole: what a tiling error of a fast engine looks like.
class WholeCommandFault final : public MxuEngine {
 public:
  void run(const MxuJob& job) override {
    good_.run(job);
    if (job.k() > 128) {
      job.out[5] ^= 1;
    }
  }
  const char* name() const override { return "faulty"; }

 private:
  MxuScalarEngine good_{spec::MxuShape{}};
};

TEST(MxuLockstep, AFaultOfTheWholeCommandIsFoundToo) {
  std::vector<MxuMismatch> found;
  MxuLockstepOptions options;
  options.dump_prefix = "/nonexistent/folder/x";
  options.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
  MxuLockstepEngine engine(std::make_unique<WholeCommandFault>(), make_rtl_array({}), options);
  OwnedJob owned = test::packed_job({2, 200, 20}, 4, Values::kNormal);
  engine.run(owned.job);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].whole_command);
  EXPECT_EQ(found[0].col, 1u);
  EXPECT_TRUE(found[0].dump_path.empty());
  EXPECT_NE(found[0].text.find("cannot write"), std::string::npos) << found[0].text;
}

// The Verilog with a fault around it; derived classes make step().
class WrappedArray : public RtlArray {
 public:
  WrappedArray() : RtlArray(spec::MxuShape{}), array_(make_rtl_array({})), y_(shape().cols) {}
  void reset() override { array_->reset(); }
  bool y_valid() const override { return array_->y_valid(); }
  const uint32_t* y() const override { return y_.data(); }
  bool busy() const override { return array_->busy(); }
  void open_waves(const WaveOptions& options) override { array_->open_waves(options); }
  void set_wave_cycle(uint64_t cycle) override { array_->set_wave_cycle(cycle); }
  void close_waves() override { array_->close_waves(); }
  const std::string& wave_error() const override { return array_->wave_error(); }

 protected:
  void copy_result() { y_.assign(array_->y(), array_->y() + shape().cols); }

  const std::unique_ptr<RtlArray> array_;
  std::vector<uint32_t> y_;
};

// Right bits, one cycle late.
class LateArray final : public WrappedArray {
 public:
  void step(const RtlArrayInput& input) override {
    valid_ = array_->y_valid();
    copy_result();
    array_->step(input);
  }
  bool y_valid() const override { return valid_; }

 private:
  bool valid_ = false;
};

// Of a command of 9 tiles (3 K, 3 N), and of tiles alone.
TEST(MxuLockstep, ALateArrayIsFoundThoughItsBitsAgree) {
  for (const uint64_t one_in : {1U, 4U}) {
    std::vector<MxuMismatch> found;
    MxuLockstepOptions options;
    options.one_in = one_in;
    options.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
    MxuLockstepEngine engine(std::make_unique<MxuScalarEngine>(spec::MxuShape{}),
                             std::make_unique<LateArray>(), options);
    OwnedJob owned = test::packed_job({3, 300, 300}, 5, Values::kNormal);
    engine.run(owned.job);
    EXPECT_EQ(engine.counts().tiles, one_in == 1 ? 9u : 3u);
    EXPECT_EQ(engine.counts().mismatches, found.size());
    ASSERT_EQ(found.size(), one_in == 1 ? 1u : 3u);
    EXPECT_TRUE(found[0].cycles);
    EXPECT_EQ(found[0].rtl_cycle, found[0].model_cycle + 1) << found[0].text;
    EXPECT_NE(found[0].text.find(" in the Verilog, the cost model says cycle "), std::string::npos)
        << found[0].text;
  }
}

// Rounds of few tiles wait for the latency of the array: a late result delays the next round.
TEST(MxuLockstep, ATileThatStartsLateIsNamed) {
  std::vector<MxuMismatch> found;
  MxuLockstepOptions options;
  options.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
  MxuLockstepEngine engine(std::make_unique<MxuScalarEngine>(spec::MxuShape{}),
                           std::make_unique<LateArray>(), options);
  OwnedJob owned = test::packed_job({3, 300, 100}, 5, Values::kNormal);
  engine.run(owned.job);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tile, 1u);
  EXPECT_EQ(found[0].k_tile, 1u);
  EXPECT_NE(found[0].text.find("tile 1 (K tile 1, N tile 0) starts in cycle "), std::string::npos)
      << found[0].text;
}

// Wrong bits while a tile follows another that is still in the array, as from weights that are
// swapped too early; each tile alone is right.
class SwapFault final : public WrappedArray {
 public:
  void step(const RtlArrayInput& input) override {
    tiles_ = array_->busy() ? tiles_ : 0;
    tiles_ += input.x_swap ? 1 : 0;
    array_->step(input);
    copy_result();
    y_[0] ^= tiles_ > 1 ? 1 : 0;
  }

 private:
  int tiles_ = 0;  // since the array was empty
};

TEST(MxuLockstep, AFaultBetweenTilesIsFoundThoughEachAloneAgrees) {
  std::vector<MxuMismatch> found;
  MxuLockstepOptions options;
  options.on_mismatch = [&found](const MxuMismatch& m) { found.push_back(m); };
  MxuLockstepEngine engine(std::make_unique<MxuScalarEngine>(spec::MxuShape{}),
                           std::make_unique<SwapFault>(), options);
  OwnedJob owned = test::packed_job({3, 100, 300}, 5, Values::kNormal);
  engine.run(owned.job);
  ASSERT_EQ(found.size(), 1u) << found[0].text;
  EXPECT_TRUE(found[0].streamed);
  EXPECT_NE(found[0].text.find("each tile alone agrees"), std::string::npos) << found[0].text;
}

MxuTileDump empty_dump() {
  MxuTileDump dump;
  dump.tile.rows = 2;
  dump.tile.weights.resize(128 * 128);
  dump.tile.x.resize(2 * 128);
  dump.tile.running.resize(2 * 128);
  dump.rtl.resize(2 * 128);
  dump.engine.resize(2 * 128);
  return dump;
}

// Who has the old file open, under another name too, keeps it.
TEST(MxuReplay, ADumpTakesThePlaceOfTheOldFile) {
  const std::string path = temp("placed.tile");
  const std::string other = temp("placed.old");
  std::filesystem::remove(other);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "old";
  std::filesystem::create_hard_link(path, other);
  mxu_write_dump(path, empty_dump());
  EXPECT_EQ(mxu_read_dump(path).tile.rows, 2u);
  EXPECT_EQ(std::filesystem::file_size(other), 3u);
  EXPECT_THAT([] { mxu_write_dump("/nowhere/a.tile", empty_dump()); },
              ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr(
                  "cannot write the tile to /nowhere/a.tile: No such file or directory")));
}

TEST(MxuReplay, RefusesDamagedFiles) {
  const MxuTileDump dump = empty_dump();
  const std::string path = temp("damaged.tile");
  mxu_write_dump(path, dump);
  EXPECT_EQ(mxu_read_dump(path).tile.rows, 2u);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(mxu_read_dump(path), std::runtime_error);
  std::filesystem::resize_file(path, 20);
  EXPECT_THROW(mxu_read_dump(path), std::runtime_error);
  std::ofstream(path, std::ios::binary) << "not a tile dump at all, but long enough to be read";
  EXPECT_THROW(mxu_read_dump(path), std::runtime_error);
  std::filesystem::remove(path);
  EXPECT_THROW(mxu_read_dump(path), std::runtime_error);
}

}  // namespace
}  // namespace tpu::model
