// Random numbers that are the same on every host: Philox4x32-10, and normal numbers made of
// additions, multiplications, divisions and square roots of f64 only. Definition:
// docs/training.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "random/philox.hpp"

namespace tpu::training {

using base::philox;

/// What a stream of numbers is for.
enum class RandomPurpose : uint32_t {
  kState = 1,
  kSplit = 2,
  kEpoch = 3,
  kBuffer = 4,
  kAugment = 5
};

/// Numbers by index: any of them can be made on its own.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint32_t stream);

  uint64_t word(uint64_t index) const;
  /// In [0, n), 0 < n <= 2^32.
  uint64_t below(uint64_t index, uint64_t n) const;
  /// In (0, 1).
  double uniform(uint64_t index) const;
  /// Mean 0, deviation 1.
  double normal(uint64_t index) const;

 private:
  std::array<uint32_t, 2> key_;
  uint32_t stream_;
  uint32_t purpose_;
};

/// Inverse of the normal distribution, Wichura's AS 241 (about 16 digits), for 0 < p < 1.
double inverse_normal(double p);

/// Permutation of 0..count-1.
std::vector<uint32_t> permutation(const RandomStream& stream, size_t count);

}  // namespace tpu::training
