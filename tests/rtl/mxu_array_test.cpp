// Whole arrays of several sizes against the semantics of a column and the cycle formulas, and the
// structural view against the folded one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "arith/mxu_column.hpp"
#include "mxu/mxu_lockstep.hpp"
#include "mxu/mxu_rtl.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu_job_source.hpp"
#include "run/assertions.hpp"
#include "test_arrays.hpp"

namespace tpu {
namespace {

using model::MxuRtlEngine;
using model::MxuScalarEngine;
using model::RtlArray;
using model::RtlArrayInput;
using test::make_test_array;
using test::OwnedJob;
using test::Values;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Values kAllValues[] = {Values::kNormal, Values::kSpecial, Values::kUnderflow,
                                 Values::kOverflow, Values::kAnyBits};

class MxuArray : public testing::TestWithParam<const char*> {};

// Several K and N tiles, so that weights are double-buffered and running values come back in; every
// class of values.
TEST_P(MxuArray, EqualsTheLawAndTheCycleLaw) {
  MxuRtlEngine rtl(make_test_array(GetParam()));
  const spec::MxuShape shape = rtl.shape();
  MxuScalarEngine reference(shape, /*use_host_fma=*/shape.cols > 16);
  const int64_t rows = shape.rows;
  const int64_t cols = shape.cols;
  const test::PackedShape sizes[] = {{1, rows, cols, false, true},
                                     {5, 2 * rows + 3, cols + 1, true, false, true},
                                     {40, rows - 1, 3 * cols, true, true, true}};
  for (const auto& size : sizes) {
    for (const Values values : kAllValues) {
      const OwnedJob owned = test::packed_job(size, 11, values);
      std::vector<uint32_t> expected = owned.out;
      std::vector<uint32_t> actual = owned.out;
      reference.run(owned.on(expected));
      rtl.run(owned.on(actual));
      ASSERT_EQ(actual, expected) << size.rows << "x" << size.k << "x" << size.n;
      const auto timing = spec::mxu_command_timing(shape, mxu_extent(owned.job));
      ASSERT_EQ(rtl.last_cycles().done_at, timing.done_at);
    }
  }
}

TEST_P(MxuArray, BubblesChangeNoResult) {
  MxuRtlEngine rtl(make_test_array(GetParam()));
  const spec::MxuShape shape = rtl.shape();
  MxuScalarEngine reference(shape);
  for (const uint32_t one_in : {2u, 5u}) {
    rtl.set_bubbles(one_in, 99);
    const OwnedJob owned = test::packed_job({21, shape.rows + 7, 2 * shape.cols, true, true, true},
                                            12, Values::kSpecial);
    std::vector<uint32_t> expected = owned.out;
    std::vector<uint32_t> actual = owned.out;
    reference.run(owned.on(expected));
    rtl.run(owned.on(actual));
    ASSERT_EQ(actual, expected);
    EXPECT_GT(rtl.last_cycles().done_at,
              spec::mxu_command_timing(shape, mxu_extent(owned.job)).done_at);
  }
}

INSTANTIATE_TEST_SUITE_P(Arrays, MxuArray,
                         testing::Values("32x8", "64x4_d3", "128x16_d1", "128x16_d18", "128x128_d1",
                                         "128x128_d18", "array_32x8", "array_64x4_d3",
                                         "64x4_checked", "array_64x4_checked"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// One row of ones through weights of 1, but 4 in the first and the last pair, while other weights
// enter `gap` cycles after that row; the row itself comes `after_load` cycles after the last weight
// pair. Returns the result of column 0 and its latency.
struct OneRow {
  float y = 0;
  uint64_t latency = 0;
};
OneRow one_row(RtlArray& array, uint64_t gap, uint64_t after_load) {
  const size_t pairs = array.shape().rows / 2;
  const std::vector<uint32_t> ones(array.shape().cols, 0x3f803f80);
  const std::vector<uint32_t> fours(array.shape().cols, 0x40804080);
  const std::vector<uint32_t> twos(array.shape().cols, 0x40004000);
  const std::vector<uint32_t> x(pairs, 0x3f803f80);
  array.reset();
  const uint64_t row_at = pairs - 1 + after_load;
  for (uint64_t cycle = 0; cycle < 2000; ++cycle) {
    RtlArrayInput in;
    const bool again = cycle >= row_at + gap && cycle < row_at + gap + pairs;
    in.w_valid = cycle < pairs || again;
    const bool edge = cycle == 0 || cycle == pairs - 1;
    in.w = again ? twos.data() : edge ? fours.data() : ones.data();
    in.x_valid = in.x_swap = cycle == row_at;
    in.x = x.data();
    if (array.y_valid()) {
      return {spec::f32_from_bits(array.y()[0]), cycle - row_at};
    }
    array.step(in);
  }
  return {};
}

class MxuArrayRules : public testing::TestWithParam<const char*> {};

TEST_P(MxuArrayRules, LatencySwapGapAndLoadAreTheLawsAndNotOneCycleLess) {
  const auto array = make_test_array(GetParam());
  const spec::MxuShape shape = array->shape();
  const uint64_t gap = spec::mxu_swap_gap(shape);
  const auto expected = static_cast<float>(shape.rows - 4 + 4 * 4);
  const OneRow good = one_row(*array, gap, 1);
  EXPECT_EQ(good.latency, spec::mxu_latency(shape));
  EXPECT_EQ(good.y, expected);
  EXPECT_NE(one_row(*array, gap - 1, 1).y, expected);
  EXPECT_NE(one_row(*array, gap, 0).y, expected);
  rtl::take_failed_assertions();  // of arrays that have them
}

TEST_P(MxuArrayRules, BusyCoversEverythingOnItsWay) {
  const auto array = make_test_array(GetParam());
  const std::vector<uint32_t> x(array->shape().rows / 2, 0);
  array->reset();
  EXPECT_FALSE(array->busy());
  array->step({.x_valid = true, .x = x.data()});
  bool seen = false;
  for (int cycle = 0; cycle < 2000 && array->busy(); ++cycle) {
    seen = seen || array->y_valid();
    array->step({});
  }
  EXPECT_FALSE(array->busy());
  EXPECT_TRUE(seen);
}

TEST_P(MxuArrayRules, ResetForgetsRowsOnTheirWay) {
  const auto array = make_test_array(GetParam());
  const std::vector<uint32_t> x(array->shape().rows / 2, 0);
  array->step({.x_valid = true, .x = x.data()});
  for (int repeat = 0; repeat < 2; ++repeat) {
    array->reset();
    EXPECT_FALSE(array->busy());
  }
  for (uint64_t cycle = 0; cycle < 2 * spec::mxu_latency(array->shape()); ++cycle) {
    EXPECT_FALSE(array->y_valid());
    array->step({});
  }
}

INSTANTIATE_TEST_SUITE_P(Arrays, MxuArrayRules,
                         testing::Values("32x8", "64x4_d3", "128x16_d1", "128x16_d18",
                                         "128x128_d18", "array_32x8", "array_64x4_d3"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// The assertions of mxu_sva.sv.
class MxuAssertions : public testing::TestWithParam<const char*> {};

TEST_P(MxuAssertions, TellWhoDrivesThePortsAgainstTheLaw) {
  const auto array = make_test_array(GetParam());
  const uint64_t gap = spec::mxu_swap_gap(array->shape());
  const auto told = [] { return rtl::take_failed_assertions().text(); };
  one_row(*array, gap, 1);
  EXPECT_EQ(told(), "");
  one_row(*array, gap - 1, 1);
  EXPECT_THAT(told(), HasSubstr("before the swap gap is over"));
  one_row(*array, gap, 0);
  EXPECT_THAT(told(), HasSubstr("in the cycle of the row that swaps"));
  const std::vector<uint32_t> zeros(array->shape().rows / 2);
  array->reset();
  array->step({.w_valid = true, .w = zeros.data()});
  array->step({.x_valid = true, .x_swap = true, .x = zeros.data()});
  EXPECT_THAT(told(), HasSubstr("weight pairs: expected Rows / 2"));
}

INSTANTIATE_TEST_SUITE_P(Arrays, MxuAssertions,
                         testing::Values("64x4_checked", "array_64x4_checked", "128x128_d18"),
                         [](const auto& param_info) { return std::string(param_info.param); });

// An array that is given weights in a cycle in which none may enter.
class DisturbedArray final : public RtlArray {
 public:
  DisturbedArray(std::unique_ptr<RtlArray> array, uint64_t cycle)
      : RtlArray(array->shape()), array_(std::move(array)), left_(cycle) {}

  void reset() override { array_->reset(); }
  void step(const RtlArrayInput& input) override {
    RtlArrayInput in = input;
    const std::vector<uint32_t> zeros(shape().cols);
    if (left_ != 0 && --left_ == 0) {
      in.w_valid = true;
      in.w = zeros.data();
    }
    array_->step(in);
  }
  bool y_valid() const override { return array_->y_valid(); }
  const uint32_t* y() const override { return array_->y(); }
  bool busy() const override { return array_->busy(); }
  void open_waves(const model::WaveOptions& options) override { array_->open_waves(options); }
  void set_wave_cycle(uint64_t cycle) override { array_->set_wave_cycle(cycle); }
  void close_waves() override { array_->close_waves(); }
  const std::string& wave_error() const override { return array_->wave_error(); }

 private:
  const std::unique_ptr<RtlArray> array_;
  uint64_t left_;
};

TEST(MxuAssertion, IsToldWithTheJobInWhichItFails) {
  const OwnedJob owned = test::packed_job({5, 128, 128, true, true}, 8, Values::kNormal);
  std::vector<uint32_t> out = owned.out;
  model::MxuJob job = owned.on(out);
  job.op_id = 7;
  const auto array = [] {  // pairs enter in cycles 0 to 63, the row that swaps in cycle 64
    return std::make_unique<DisturbedArray>(make_test_array("128x128_d18"), 65);
  };
  std::vector<std::string> told;
  MxuRtlEngine engine(array(), [&told](const std::string& text) { told.push_back(text); });
  engine.run(job);
  EXPECT_EQ(engine.mismatches(), 1U);
  EXPECT_THAT(told, ElementsAre(HasSubstr("in cycle 64 of the matmul of op 7: mxu_sva.sv:")));
  engine.run(job);
  EXPECT_EQ(engine.mismatches(), 1U);
  told.clear();
  model::MxuLockstepOptions options;
  options.max_dumps = 0;
  options.on_mismatch = [&told](const model::MxuMismatch& mismatch) {
    told.push_back(mismatch.text);
  };
  model::MxuLockstepEngine lockstep(std::make_unique<MxuScalarEngine>(spec::MxuShape{}, true),
                                    array(), options);
  lockstep.run(job);
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told.front(), HasSubstr("mxu_sva.sv:"));
  EXPECT_EQ(lockstep.mismatches(), told.size());
}

// Random rows, swaps and weights in any cycle, orderly or not: both views must do the same in every
// cycle.
class MxuViews : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MxuViews, FoldedEqualsStructuralCycleByCycle) {
  const auto folded = make_test_array(GetParam().first);
  const auto structural = make_test_array(GetParam().second);
  const spec::MxuShape shape = folded->shape();
  ASSERT_EQ(shape, structural->shape());
  std::mt19937_64 rng(5);
  std::vector<uint32_t> w(shape.cols), acc(shape.cols), x(shape.rows / 2);
  uint64_t rows = 0;
  uint64_t density = 1;
  for (int cycle = 0; cycle < 30'000; ++cycle) {
    if (cycle % 500 == 0) {
      density = 1 + rng() % 6;
    }
    const auto words = [&rng](std::vector<uint32_t>& v) {
      for (uint32_t& word : v) {
        word = test::random_f32(rng, Values::kSpecial) & 0xffff0000u;
        word |= test::random_f32(rng, Values::kNormal) >> 16;
      }
    };
    words(w);
    words(x);
    words(acc);
    const RtlArrayInput in{.w_valid = rng() % 3 != 0,
                           .x_valid = rng() % density == 0,
                           .x_swap = rng() % 40 == 0,
                           .w = w.data(),
                           .x = x.data(),
                           .acc = acc.data()};
    folded->step(in);
    structural->step(in);
    ASSERT_EQ(folded->y_valid(), structural->y_valid()) << "cycle " << cycle;
    ASSERT_EQ(folded->busy(), structural->busy()) << "cycle " << cycle;
    if (folded->y_valid()) {
      ++rows;
      for (size_t j = 0; j < shape.cols; ++j) {
        ASSERT_EQ(folded->y()[j], structural->y()[j]) << "cycle " << cycle << " column " << j;
      }
    }
  }
  EXPECT_GT(rows, 5'000u);
}

INSTANTIATE_TEST_SUITE_P(Views, MxuViews,
                         testing::Values(std::pair{"32x8", "array_32x8"},
                                         std::pair{"64x4_d3", "array_64x4_d3"}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.first);
                         });

TEST(MxuArrays, TwoRunAtOnceOnTwoThreads) {
  const OwnedJob owned = test::packed_job({60, 300, 40, true, true}, 8, Values::kSpecial);
  std::vector<uint32_t> expected = owned.out;
  MxuScalarEngine({.cols = 16}).run(owned.on(expected));
  std::array<std::vector<uint32_t>, 2> actual{owned.out, owned.out};
  std::vector<std::unique_ptr<MxuRtlEngine>> engines;  // made here, run elsewhere
  std::vector<std::thread> threads;
  for (size_t i = 0; i < actual.size(); ++i) {
    engines.push_back(std::make_unique<MxuRtlEngine>(make_test_array("128x16_d18")));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 3; ++repeat) {
        engines[i]->run(owned.on(actual[i]));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(actual[0], expected);
  EXPECT_EQ(actual[1], expected);
}

TEST(MxuWaves, WritesAnFstOfTheTileWindow) {
  const auto path = std::filesystem::path(testing::TempDir()) / "mxu_window.fst";
  {
    MxuRtlEngine rtl(make_test_array("32x8"));
    rtl.set_wave_window({.path = path, .clock_hz = 940'000'000, .first_tile = 1, .tiles = 3});
    OwnedJob owned = test::packed_job({4, 64, 16, true, true}, 1, Values::kNormal);
    rtl.run(owned.job);
  }
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(file.get(), 0);  // an FST starts with its header block
  EXPECT_GT(std::filesystem::file_size(path), 500u);
  std::filesystem::remove(path);
}

TEST(MxuWaves, AnUnwritablePathIsAnErrorAtOnce) {
  MxuRtlEngine rtl(make_test_array("32x8"));
  OwnedJob owned = test::packed_job({4, 64, 16, true, true}, 1, Values::kNormal);
  EXPECT_THROW(rtl.set_wave_window({.path = "/nonexistent/folder/x.fst", .clock_hz = 1'000'000}),
               std::runtime_error);
  rtl.run(owned.job);
  EXPECT_EQ(rtl.tiles_run(), 4u);
  EXPECT_EQ(rtl.wave_error(), "");
}

TEST(MxuWaves, AFullDiskEndsTheDumpAndNothingElse) {
  const auto path = std::filesystem::path(testing::TempDir()) / "mxu_full.fst";
  const auto array = make_test_array("32x8");
  model::WaveOptions options{.path = path, .clock_hz = 1'000'000};
  options.min_free_bytes = UINT64_MAX;
  EXPECT_THROW(array->open_waves(options), std::runtime_error);
  options.min_free_bytes = std::filesystem::space(testing::TempDir()).available - (4u << 20);
  array->open_waves(options);
  const auto filler = path.string() + ".filler";
  std::ofstream(filler, std::ios::binary) << std::string(64u << 20, 'x');  // the disk fills up
  for (int cycle = 0; cycle < 1100; ++cycle) {
    array->step({});
  }
  EXPECT_NE(array->wave_error().find("nearly full"), std::string::npos);
  EXPECT_GT(std::filesystem::file_size(path), 100u);  // what was dumped so far is complete
  std::filesystem::remove(filler);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tpu
