// Complex numbers for tests of the pass `split_complex`: arrays of them as arguments of the split
// graph, and distances from what is expected.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <random>
#include <vector>

#include "ir/type.hpp"
#include "tensors.hpp"

namespace tpu::compiler::test {

using Number = std::complex<float>;
using Numbers = std::vector<Number>;
using Exact = std::complex<double>;

inline Type c64(Dims dims) { return {Elem::kComplex64, std::move(dims)}; }

inline Numbers random_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Numbers out;
  for (int64_t i = 0; i < count; ++i) {
    const float re = normal(random);
    out.emplace_back(re, normal(random));
  }
  return out;
}

// Relative L2.
inline void expect_near(const Numbers& made, const std::vector<Exact>& wanted, double bound) {
  ASSERT_EQ(made.size(), wanted.size());
  double gap = 0, norm = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    gap += std::norm(Exact(made[i]) - wanted[i]);
    norm += std::norm(wanted[i]);
  }
  EXPECT_LE(std::sqrt(gap), bound * std::sqrt(norm));
}

}  // namespace tpu::compiler::test
