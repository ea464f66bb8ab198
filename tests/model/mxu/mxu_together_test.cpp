// Commands with the same rhs that are computed at once: the bits of each are those of the command
// alone, on every instruction set of the host and on the emulated ones.
#include <gtest/gtest.h>

#include <cstring>

#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::OwnedJob;
using test::Values;

// A copy that points into itself, but to the original's rhs; with other values of lhs and results.
struct Follower {
  // `shift`: bytes behind the original's first one.
  Follower(const OwnedJob& original, uint64_t seed, double zeros, int64_t shift) : owned(original) {
    std::mt19937_64 rng(seed);
    MxuJob& job = owned.job;
    test::fill(owned.lhs, job.lhs_is_bf16, rng, Values::kSpecial);
    std::bernoulli_distribution zero(zeros);
    const size_t element = job.lhs_is_bf16 ? 2 : 4;
    for (size_t at = 0; at < owned.lhs.size() / element * element; at += element) {
      if (zero(rng)) {
        std::memset(&owned.lhs[at], 0, element);
      }
    }
    for (uint32_t& value : owned.out) {
      value = test::random_f32(rng, Values::kNormal);
    }
    job.lhs = owned.lhs.data() + (original.job.lhs - original.lhs.data()) + shift;
    job.out = reinterpret_cast<uint8_t*>(owned.out.data()) +
              (original.job.out - reinterpret_cast<const uint8_t*>(original.out.data()));
  }
  OwnedJob owned;
};

void expect_same_together(const OwnedJob& original, size_t count, double zeros,
                          const std::string& what, int64_t odd_shift = 0) {
  const spec::MxuShape shape;
  std::vector<std::unique_ptr<Follower>> followers;
  std::vector<std::vector<uint32_t>> wanted;
  for (size_t i = 0; i < count; ++i) {
    followers.push_back(
        std::make_unique<Follower>(original, i + 1, zeros, i % 2 == 0 ? 0 : odd_shift));
    OwnedJob& owned = followers.back()->owned;
    owned.job.row_begin = std::min<int64_t>(static_cast<int64_t>(i % 3), owned.job.rows() - 1);
    ASSERT_TRUE(mxu_same_rhs(followers.front()->owned.job, owned.job));
    wanted.push_back(owned.out);
    MxuScalarEngine(shape).run(owned.on(wanted.back()));
  }
  for (const test::KernelSet& set : test::kernel_sets()) {
    std::vector<std::vector<uint32_t>> got(count);
    std::vector<MxuJob> jobs;
    for (size_t i = 0; i < count; ++i) {
      got[i] = followers[i]->owned.out;
      jobs.push_back(followers[i]->owned.on(got[i]));
    }
    MxuFastEngine(shape, set.kernels).run_together(jobs);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(got[i], wanted[i]) << what << ", " << set.name << ", job " << i;
    }
  }
}

TEST(MxuTogether, DenseLayersOfFewRows) {
  for (const bool bf16 : {false, true}) {
    for (const int64_t k : {9, 70, 300, 1056}) {
      OwnedJob owned = test::packed_job(
          {.rows = 25, .k = k, .n = 130, .lhs_bf16 = bf16, .accumulate = k % 20 == 0}, 7,
          Values::kNormal);
      expect_same_together(owned, 5, 0, "weights");
      test::transpose_rhs(owned);
      expect_same_together(owned, 8, 0, "weights transposed");
    }
  }
}

// Rows of several commands lie evenly apart by short runs, or not by whole words.
TEST(MxuTogether, Bf16OfFewRowsAtAnyPlace) {
  for (const int64_t rows : {1, 2, 4, 6, 25}) {
    for (const size_t count : {size_t{2}, size_t{3}, size_t{8}}) {
      OwnedJob owned =
          test::packed_job({.rows = rows, .k = 256, .n = 64, .lhs_bf16 = true, .rhs_bf16 = true}, 9,
                           Values::kNormal);
      expect_same_together(owned, count, 0, std::to_string(rows) + " rows");
      owned.lhs.resize(owned.lhs.size() + 8);
      owned.job.lhs = owned.lhs.data();
      expect_same_together(owned, count, 0, std::to_string(rows) + " rows, odd places", 2);
    }
  }
}

// More rows than are packed, or go through all of K, at once.
TEST(MxuTogether, ManyRows) {
  expect_same_together(test::packed_job({.rows = 130, .k = 600, .n = 70}, 1, Values::kNormal), 5, 0,
                       "many rows");
}

TEST(MxuTogether, WindowsThatAreRoundedOnceForEachCommand) {
  for (const bool bf16 : {false, true}) {
    for (const double zeros : {0.0, 0.7}) {
      const test::WindowShape window{.side = 12, .channels = 64, .out = 128, .bf16 = bf16};
      expect_same_together(test::window_job(window, 3, Values::kNormal), 3, zeros, "windows");
    }
  }
}

TEST(MxuTogether, ZerosOfLhsThatAreSkipped) {
  expect_same_together(test::packed_job({.rows = 40, .k = 640, .n = 256}, 5, Values::kNormal), 4,
                       0.8, "zeros");
}

TEST(MxuTogether, StridesOfAllKinds) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    expect_same_together(test::strided_job(seed, Values::kSpecial), 1 + seed % 4, 0.2,
                         "seed " + std::to_string(seed));
  }
}

TEST(MxuTogether, OnlyJobsWithTheSameRhsAreAlike) {
  const OwnedJob owned = test::packed_job({.rows = 25, .k = 70, .n = 64}, 1, Values::kNormal);
  const MxuJob& job = owned.job;
  MxuJob other = job;
  other.lhs += 4;
  other.out += 4;
  other.m_count[3] = 20;
  other.m_lhs_stride[3] *= 2;
  EXPECT_TRUE(mxu_same_rhs(job, other));
  const auto differs = [&job](auto change) {
    MxuJob changed = job;
    change(changed);
    return !mxu_same_rhs(job, changed);
  };
  EXPECT_TRUE(differs([](MxuJob& j) { j.rhs += 4; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.rhs_is_bf16 = true; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.lhs_is_bf16 = true; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.accumulate = true; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.k_count[2] = 35; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.k_rhs_stride[2] = 4; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.t_count[2] = 2; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.t_lhs_stride[2] = 8; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.t_rhs_stride[2] = 8; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.n_count[1] = 32; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.n_rhs_stride[1] = 8; }));
  EXPECT_TRUE(differs([](MxuJob& j) { j.n_out_stride[1] = 8; }));
  MxuFastEngine engine(spec::MxuShape{}, base::host_simd().back());
  EXPECT_EQ(engine.group(job), engine.group(other));
  other.m_count[3] = 1000;
  EXPECT_EQ(engine.group(other), 0u) << "enough rows for what is packed of rhs";
}

}  // namespace
}  // namespace tpu::model
