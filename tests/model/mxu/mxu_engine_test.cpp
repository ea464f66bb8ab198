// Conformance of MXU engines on jobs with every kind of stride: each named engine must give the
// bits of spec/arith/mxu_column.hpp.
#include "mxu/mxu_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "arith/flush_mode.hpp"
#include "arith/mxu_column.hpp"
#include "mxu/mxu_factory.hpp"
#include "mxu/mxu_scalar.hpp"
#include "mxu/mxu_tiles.hpp"
#include "mxu_job_source.hpp"

namespace tpu::model {
namespace {

using test::kAllValues;
using test::OwnedJob;
using test::Values;

uint16_t element(const uint8_t* base, int64_t offset, bool is_bf16) {
  if (is_bf16) {
    uint16_t bits;
    std::memcpy(&bits, base + offset, sizeof bits);
    return bits;
  }
  uint32_t bits;
  std::memcpy(&bits, base + offset, sizeof bits);
  return spec::bf16_from_f32_bits(bits);
}

// The job by its definition: plain loops over all counts, no tiles but the cut of K. Knows nothing
// of the engines.
void run_by_definition(const spec::MxuShape& shape, const MxuJob& j) {
  const auto at4 = [](const auto& s, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * s[0] + b * s[1] + c * s[2] + d * s[3];
  };
  const auto at3 = [](const auto& s, int64_t a, int64_t b, int64_t c) {
    return a * s[0] + b * s[1] + c * s[2];
  };
  const auto output = [&](int64_t m_lhs, int64_t n_rhs, uint8_t* out) {
    uint32_t running = 0;
    if (j.accumulate) {
      std::memcpy(&running, out, sizeof running);
    }
    for (int64_t t0 = 0; t0 < j.t_count[0]; ++t0) {
      for (int64_t t1 = 0; t1 < j.t_count[1]; ++t1) {
        for (int64_t t2 = 0; t2 < j.t_count[2]; ++t2) {
          std::vector<uint16_t> w, x;
          int64_t k = 0;
          for (int64_t k0 = 0; k0 < j.k_count[0]; ++k0) {
            for (int64_t k1 = 0; k1 < j.k_count[1]; ++k1) {
              for (int64_t k2 = 0; k2 < j.k_count[2]; ++k2, ++k) {
                x.push_back(element(j.lhs,
                                    m_lhs + at3(j.t_lhs_stride, t0, t1, t2) + k * j.lhs_element(),
                                    j.lhs_is_bf16));
                w.push_back(element(
                    j.rhs,
                    n_rhs + at3(j.t_rhs_stride, t0, t1, t2) + at3(j.k_rhs_stride, k0, k1, k2),
                    j.rhs_is_bf16));
              }
            }
          }
          for (size_t first = 0; first < w.size(); first += shape.rows) {
            running =
                spec::mxu_column_bits(shape, &w[first], &x[first],
                                      std::min<size_t>(shape.rows, w.size() - first), running);
          }
        }
      }
    }
    std::memcpy(out, &running, sizeof running);
  };
  for (int64_t m0 = 0; m0 < j.m_count[0]; ++m0) {
    for (int64_t m1 = 0; m1 < j.m_count[1]; ++m1) {
      for (int64_t m2 = 0; m2 < j.m_count[2]; ++m2) {
        for (int64_t m3 = 0; m3 < j.m_count[3]; ++m3) {
          for (int64_t n0 = 0; n0 < j.n_count[0]; ++n0) {
            for (int64_t n1 = 0; n1 < j.n_count[1]; ++n1) {
              output(at4(j.m_lhs_stride, m0, m1, m2, m3),
                     n0 * j.n_rhs_stride[0] + n1 * j.n_rhs_stride[1],
                     j.out + at4(j.m_out_stride, m0, m1, m2, m3) + n0 * j.n_out_stride[0] +
                         n1 * j.n_out_stride[1]);
            }
          }
        }
      }
    }
  }
}

class MxuEngineTest : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<MxuEngine> make(const spec::MxuShape& shape) {
    return make_mxu_engine({.kind = GetParam(), .simd = "auto", .shape = shape, .lockstep = {}});
  }
  static void expect_definition(MxuEngine& engine, const spec::MxuShape& shape,
                                const OwnedJob& owned, const std::string& what) {
    std::vector<uint32_t> expected = owned.out;
    std::vector<uint32_t> actual = owned.out;
    run_by_definition(shape, owned.on(expected));
    engine.run(owned.on(actual));
    EXPECT_EQ(actual, expected) << what;
  }
};

TEST_P(MxuEngineTest, EqualsTheLawOnStridedJobs) {
  const spec::MxuShape shape;
  const auto engine = make(shape);
  for (uint64_t seed = 0; seed < 15; ++seed) {
    expect_definition(*engine, shape, test::strided_job(seed, kAllValues[seed % 5]),
                      "seed " + std::to_string(seed));
  }
}

TEST_P(MxuEngineTest, EqualsTheLawOnPackedJobs) {
  const spec::MxuShape shape;
  const auto engine = make(shape);
  const test::PackedShape shapes[] = {
      {1, 1, 1}, {3, 31, 5}, {2, 128, 128}, {25, 129, 130, true, true, true}, {7, 300, 16, true}};
  for (const auto& s : shapes) {
    for (const Values values : kAllValues) {
      expect_definition(*engine, shape, test::packed_job(s, 3, values),
                        std::to_string(s.rows) + "x" + std::to_string(s.k));
    }
  }
}

TEST_P(MxuEngineTest, RowRangesGiveTheSameBitsAsTheWholeJob) {
  const auto engine = make({});
  if (!engine->splittable()) {
    GTEST_SKIP() << "engine takes whole jobs only";
  }
  const OwnedJob owned = test::strided_job(21, Values::kSpecial);
  std::vector<uint32_t> whole = owned.out;
  std::vector<uint32_t> parts = owned.out;
  engine->run(owned.on(whole));
  for (const MxuJob& part : mxu_split_rows(owned.on(parts), 3, 2)) {
    engine->run(part);
  }
  EXPECT_EQ(parts, whole);
}

TEST_P(MxuEngineTest, ColumnRangesGiveTheSameBitsAsTheWholeJob) {
  const auto engine = make({});
  if (!engine->splittable()) {
    GTEST_SKIP() << "engine takes whole jobs only";
  }
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const OwnedJob owned = test::strided_job(seed, Values::kSpecial);
    std::vector<uint32_t> whole = owned.out;
    engine->run(owned.on(whole));
    for (const int64_t granule : {1, 4, 1000}) {
      std::vector<uint32_t> parts = owned.out;
      for (const MxuJob& part : mxu_split_columns(owned.on(parts), 3, granule)) {
        engine->run(part);
      }
      EXPECT_EQ(parts, whole) << "seed " << seed << ", granule " << granule;
    }
  }
}

TEST_P(MxuEngineTest, LeavesTheCallersFloatingPointMode) {
  const auto engine = make({});
  const uint64_t before = spec::ScopedFlushMode::mode();
  OwnedJob owned = test::packed_job({4, 40, 40}, 1, Values::kNormal);
  engine->run(owned.job);
  EXPECT_EQ(spec::ScopedFlushMode::mode(), before);
}

INSTANTIATE_TEST_SUITE_P(Engines, MxuEngineTest, testing::Values("fast", "scalar", "rtl"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(MxuScalar, IntegerLawAndSerialOrderAgreeWithTheDefinition) {
  for (const spec::MxuShape& shape :
       {spec::MxuShape{}, spec::MxuShape{.sums = spec::MxuSums::kSerial}}) {
    for (const bool host_fma : {false, true}) {
      MxuScalarEngine engine(shape, host_fma);
      for (const Values values : kAllValues) {
        const OwnedJob owned = test::packed_job({3, 200, 20, false, true, true}, 5, values);
        std::vector<uint32_t> expected = owned.out;
        std::vector<uint32_t> actual = owned.out;
        run_by_definition(shape, owned.on(expected));
        engine.run(owned.on(actual));
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

TEST(MxuSplit, CoversAllRowsOnceInMultiplesOfTheGranule) {
  OwnedJob owned = test::packed_job({100, 8, 8}, 1, Values::kNormal);
  const auto parts = mxu_split_rows(owned.job, 3, 8);
  ASSERT_EQ(parts.size(), 3u);
  int64_t next = 0;
  for (const MxuJob& part : parts) {
    EXPECT_EQ(part.row_begin, next);
    next = part.row_end;
  }
  EXPECT_EQ(next, 100);
  EXPECT_EQ(parts[0].rows() % 8, 0);
  EXPECT_EQ(mxu_split_rows(owned.job, 1000).size(), 100u);
}

// The columns of all parts, as (outer, inner) pairs; each part's operands begin at its first one.
std::vector<std::pair<int64_t, int64_t>> columns_of(const MxuJob& whole,
                                                    const std::vector<MxuJob>& parts) {
  std::vector<std::pair<int64_t, int64_t>> columns;
  for (const MxuJob& part : parts) {
    const int64_t bytes = part.out - whole.out;
    const int64_t outer = bytes / whole.n_out_stride[0];
    const int64_t inner = bytes % whole.n_out_stride[0] / whole.n_out_stride[1];
    EXPECT_EQ(part.rhs - whole.rhs, outer * whole.n_rhs_stride[0] + inner * whole.n_rhs_stride[1]);
    for (int64_t n0 = 0; n0 < part.n_count[0]; ++n0) {
      for (int64_t n1 = 0; n1 < part.n_count[1]; ++n1) {
        columns.emplace_back(outer + n0, inner + n1);
      }
    }
  }
  std::ranges::sort(columns);
  return columns;
}

TEST(MxuSplit, CoversAllColumnsOnce) {
  MxuJob job;
  job.n_rhs_stride = {4096, 4};
  job.n_out_stride = {8192, 4};
  for (const auto& [outer, inner] : {std::pair{1, 300}, {3, 64}, {2, 130}, {5, 7}}) {
    job.n_count = {outer, inner};
    const auto all = columns_of(job, {job});
    for (const int64_t parts : {1, 2, 3, 8}) {
      EXPECT_EQ(columns_of(job, mxu_split_columns(job, parts, 64)), all)
          << outer << " x " << inner << " in " << parts;
    }
  }
  job.n_count = {1, 300};
  const auto parts = mxu_split_columns(job, 2, 64);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].n_count[1], 192);  // whole granules
  job.n_count = {3, 64};
  EXPECT_EQ(mxu_split_columns(job, 2, 64).size(), 2u);  // two runs and one
  job.n_count = {1, 64};
  EXPECT_EQ(mxu_split_columns(job, 2, 64).size(), 1u);
}

TEST(MxuSplit, CutsWhereLessIsPackedAgain) {
  const auto cut = [](int64_t rows, int64_t k, int64_t n) {
    MxuJob job;
    job.m_count = {1, 1, 1, rows};
    job.k_count = {1, 1, k};
    job.n_count = {1, n};
    return mxu_cut(job);
  };
  EXPECT_FALSE(cut(2048, 512, 384).columns);
  EXPECT_EQ(cut(2048, 512, 384).most, 21);  // of 96 rows at least
  EXPECT_TRUE(cut(64, 2688, 128).columns);  // too few rows
  EXPECT_EQ(cut(64, 2688, 128).most, 2);
  EXPECT_TRUE(cut(200, 784, 512).columns);    // rhs is the larger
  EXPECT_FALSE(cut(2048, 2048, 64).columns);  // no columns to cut
  EXPECT_EQ(cut(64, 64, 64).most, 1);         // too few rows and columns
}

TEST(MxuFactory, NamesWhatItDoesNotKnow) {
  EXPECT_FALSE(mxu_kind_error("lockstep:1/1000"));
  EXPECT_TRUE(mxu_kind_error("lockstep:1/0"));
  EXPECT_TRUE(mxu_kind_error("lockstep:1/x"));
  EXPECT_TRUE(mxu_kind_error("quick"));
  const MxuEngineOptions serial{
      .kind = "rtl", .simd = "auto", .shape = {.sums = spec::MxuSums::kSerial}, .lockstep = {}};
  try {
    make_mxu_engine(serial);
    FAIL() << "there is no Verilog of the serial order";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no Verilog array"), std::string::npos);
  }
}

}  // namespace
}  // namespace tpu::model
