// The byte runs that a command is said to touch (for the happens-before checker) are exactly those
// of its plain loops, whatever overlaps or runs backwards; and they are few.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/access_walk.hpp"

namespace tpu::model {
namespace {

using Bytes = std::set<uint64_t>;

struct Touched {
  Bytes read, written;
  size_t runs = 0;

  RunVisitor visitor() {
    return [this](uint64_t address, uint64_t bytes, bool write) {
      ++runs;
      add(address, bytes, write);
    };
  }
  void add(uint64_t address, uint64_t bytes, bool write) {
    for (uint64_t i = 0; i < bytes; ++i) {
      (write ? written : read).insert(address + i);
    }
  }
};

template <size_t kLevels, typename Body>
void for_each(const std::array<int64_t, kLevels>& count, const std::array<int64_t, kLevels>& stride,
              const Body& body, size_t level = 0, int64_t offset = 0) {
  if (level == kLevels) {
    body(offset);
    return;
  }
  for (int64_t i = 0; i < count[level]; ++i) {
    for_each(count, stride, body, level + 1, offset + i * stride[level]);
  }
}

constexpr uint64_t kOut = 1 << 20, kLhs = 2 << 20, kRhs = 3 << 20;

Touched plain_matmul(const MxuJob& j) {
  Touched touched;
  const auto at = [](uint64_t base, int64_t offset) {
    return base + static_cast<uint64_t>(offset);
  };
  for_each(j.t_count, j.t_lhs_stride, [&](int64_t t) {
    for_each(j.m_count, j.m_lhs_stride, [&](int64_t m) {
      touched.add(at(kLhs, t + m), static_cast<uint64_t>(j.k() * j.lhs_element()), false);
    });
  });
  for_each(j.t_count, j.t_rhs_stride, [&](int64_t t) {
    for_each(j.k_count, j.k_rhs_stride, [&](int64_t k) {
      for_each(j.n_count, j.n_rhs_stride, [&](int64_t n) {
        touched.add(at(kRhs, t + k + n), static_cast<uint64_t>(j.rhs_element()), false);
      });
    });
  });
  for_each(j.m_count, j.m_out_stride, [&](int64_t m) {
    for_each(j.n_count, j.n_out_stride, [&](int64_t n) {
      if (j.accumulate) {
        touched.add(at(kOut, m + n), 4, false);
      }
      touched.add(at(kOut, m + n), 4, true);
    });
  });
  return touched;
}

void expect_same(const MatmulPlan& plan, const std::string& what) {
  Touched touched;
  visit_matmul(plan, kOut, kLhs, kRhs, touched.visitor());
  const Touched wanted = plain_matmul(plan.job);
  EXPECT_EQ(touched.read, wanted.read) << what;
  EXPECT_EQ(touched.written, wanted.written) << what;
}

TEST(AccessWalk, MatmulsTouchWhatPlainLoopsDo) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    MatmulPlan plan;
    MxuJob& j = plan.job;
    const auto fill = [&](auto& count, auto& first, auto& second) {
      for (size_t i = 0; i < count.size(); ++i) {
        count[i] = static_cast<int64_t>(random() % 4 + 1);
        first[i] = (static_cast<int64_t>(random() % 25) - 12) * 4;
        second[i] = (static_cast<int64_t>(random() % 25) - 12) * 4;
      }
    };
    std::array<int64_t, 3> unused{};
    fill(j.m_count, j.m_lhs_stride, j.m_out_stride);
    fill(j.t_count, j.t_lhs_stride, j.t_rhs_stride);
    fill(j.k_count, j.k_rhs_stride, unused);
    fill(j.n_count, j.n_rhs_stride, j.n_out_stride);
    j.accumulate = round % 2 == 0;
    j.lhs_is_bf16 = round % 3 == 0;
    expect_same(plan, "round " + std::to_string(round));
  }
}

TEST(AccessWalk, WindowsAndTransposedWeightsAreFewRuns) {
  constexpr int64_t kChannels = 8, kSide = 6, kOutSide = 4;
  MatmulPlan plan;
  MxuJob& j = plan.job;
  j.m_count = {1, 1, kOutSide, kOutSide};
  j.m_lhs_stride = {0, 0, kSide * kChannels * 4, kChannels * 4};
  j.m_out_stride = {0, 0, kOutSide * kChannels * 4, kChannels * 4};
  j.t_count = {1, 3, 3};
  j.t_lhs_stride = {0, kSide * kChannels * 4, kChannels * 4};
  j.t_rhs_stride = {0, -3 * kChannels * kChannels * 4, -kChannels * kChannels * 4};
  j.k_count[2] = kChannels;
  j.k_rhs_stride[2] = 4;
  j.n_count[1] = kChannels;
  j.n_rhs_stride[1] = kChannels * 4;
  j.n_out_stride[1] = 4;
  expect_same(plan, "convolution");
  Touched touched;
  visit_matmul(plan, kOut, kLhs, kRhs, touched.visitor());
  EXPECT_EQ(touched.runs, 3u);
}

}  // namespace
}  // namespace tpu::model
