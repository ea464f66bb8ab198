// Makes MXU jobs with their own memory, for tests: packed, or with random strides, types and value
// classes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "arith/bf16.hpp"
#include "mxu/mxu_engine.hpp"

namespace tpu::test {

enum class Values { kNormal, kSpecial, kUnderflow, kOverflow, kAnyBits };
inline constexpr Values kAllValues[] = {Values::kNormal, Values::kSpecial, Values::kUnderflow,
                                        Values::kOverflow, Values::kAnyBits};

// An operand of the given class; kSpecial mixes in zeros, infinities, NaNs and subnormals.
inline uint32_t random_f32(std::mt19937_64& rng, Values values) {
  const auto r = static_cast<uint32_t>(rng());
  const auto pick = static_cast<uint32_t>(rng());
  const auto with_exponent = [r](uint32_t exponent) { return (r & 0x807fffffu) | exponent << 23; };
  switch (values) {
    case Values::kUnderflow:
      return with_exponent(pick % 80);
    case Values::kOverflow:
      return with_exponent(180 + pick % 75);
    case Values::kAnyBits:
      return r;
    case Values::kSpecial: {
      constexpr uint32_t kSpecials[] = {0,           0x80000000u, 0x7f800000u, 0xff800000u,
                                        0x7fc00001u, 0x7f7f0000u, 0x00010000u, 0x807fffffu};
      if (pick % 256 < 8) {
        return kSpecials[pick % 8];
      }
      break;
    }
    case Values::kNormal:
      break;
  }
  return with_exponent(117 + (pick >> 8) % 16);
}

// A job and the memory it points to. Copies of `out` let several engines run the same job.
struct OwnedJob {
  model::MxuJob job;
  std::vector<uint8_t> lhs, rhs;
  std::vector<uint32_t> out;

  model::MxuJob on(std::vector<uint32_t>& target) const { return on(target.data()); }
  model::MxuJob on(uint32_t* target) const {
    model::MxuJob j = job;
    j.out = reinterpret_cast<uint8_t*>(target) +
            (job.out - reinterpret_cast<const uint8_t*>(out.data()));
    return j;
  }
};

inline void fill(std::vector<uint8_t>& bytes, bool bf16, std::mt19937_64& rng, Values values) {
  const size_t element = bf16 ? 2 : 4;
  for (size_t i = 0; i + element <= bytes.size(); i += element) {
    const uint32_t bits = random_f32(rng, values) >> (bf16 ? 16 : 0);
    std::memcpy(&bytes[i], &bits, element);
  }
}

struct PackedShape {
  int64_t rows, k, n;
  bool lhs_bf16 = false, rhs_bf16 = false, accumulate = false;
};

// Dense row-major operands.
inline OwnedJob packed_job(const PackedShape& s, uint64_t seed, Values values) {
  std::mt19937_64 rng(seed);
  OwnedJob owned;
  model::MxuJob& job = owned.job;
  job.lhs_is_bf16 = s.lhs_bf16;
  job.rhs_is_bf16 = s.rhs_bf16;
  job.accumulate = s.accumulate;
  job.m_count[3] = s.rows;
  job.m_lhs_stride[3] = s.k * job.lhs_element();
  job.m_out_stride[3] = s.n * 4;
  job.k_count[2] = s.k;
  job.k_rhs_stride[2] = s.n * job.rhs_element();
  job.n_count[1] = s.n;
  job.n_rhs_stride[1] = job.rhs_element();
  job.n_out_stride[1] = 4;
  owned.lhs.resize(static_cast<size_t>(s.rows * s.k * job.lhs_element()));
  owned.rhs.resize(static_cast<size_t>(s.k * s.n * job.rhs_element()));
  owned.out.resize(static_cast<size_t>(s.rows * s.n));
  fill(owned.lhs, s.lhs_bf16, rng, values);
  fill(owned.rhs, s.rhs_bf16, rng, values);
  for (uint32_t& v : owned.out) {
    v = random_f32(rng, values);
  }
  job.lhs = owned.lhs.data();
  job.rhs = owned.rhs.data();
  job.out = reinterpret_cast<uint8_t*>(owned.out.data());
  return owned;
}

// Weights loaded transposed: k is contiguous in memory, columns lie apart.
inline void transpose_rhs(OwnedJob& owned) {
  model::MxuJob& job = owned.job;
  job.k_rhs_stride[2] = job.rhs_element();
  job.n_rhs_stride[1] = job.k() * job.rhs_element();
  job.rhs_transposed = true;
}

struct WindowShape {
  int64_t side, channels, out;
  bool bf16 = false;
};

// Windows of 3 x 3 over an image: taps overlap in lhs, so that its range is rounded once, and the
// weights' taps run backwards. Accumulates where channels are even.
inline OwnedJob window_job(const WindowShape& s, uint64_t seed, Values values) {
  constexpr int64_t kWindow = 3;
  const int64_t e = s.bf16 ? 2 : 4;
  const int64_t rows = s.side - kWindow + 1;
  OwnedJob owned = packed_job({.rows = s.side * s.side,
                               .k = s.channels,
                               .n = kWindow * kWindow * s.out,
                               .lhs_bf16 = s.bf16,
                               .rhs_bf16 = s.bf16,
                               .accumulate = s.channels % 2 == 0},
                              seed, values);
  model::MxuJob& job = owned.job;
  job.m_count = {1, 1, rows, rows};
  job.m_lhs_stride = {0, 0, s.side * s.channels * e, s.channels * e};
  job.m_out_stride = {0, 0, rows * s.out * 4, s.out * 4};
  job.t_count = {1, kWindow, kWindow};
  job.t_lhs_stride = {0, s.side * s.channels * e, s.channels * e};
  job.t_rhs_stride = {0, -kWindow * s.out * e, -s.out * e};
  job.rhs += (kWindow * kWindow - 1) * s.out * e;
  job.n_count = {1, s.out};
  return owned;
}

// Every loop of the job in use, with gaps and negative strides.
inline OwnedJob strided_job(uint64_t seed, Values values) {
  std::mt19937_64 rng(seed);
  const auto upto = [&rng](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)) + 1;
  };
  OwnedJob owned;
  model::MxuJob& job = owned.job;
  job.lhs_is_bf16 = rng() % 2 != 0;
  job.rhs_is_bf16 = rng() % 2 != 0;
  job.accumulate = rng() % 2 != 0;
  job.m_count = {upto(2), upto(2), upto(3), upto(4)};
  job.t_count = {1, upto(2), upto(2)};
  job.k_count = {upto(2), upto(2), upto(90)};
  job.n_count = {upto(2), upto(160)};
  int64_t lhs_at = 0, rhs_at = 0, out_at = 0;
  int64_t lhs_size = job.k() * job.lhs_element(), rhs_size = job.rhs_element(), out_size = 4;
  // Each loop strides over everything inside it, sometimes with a gap, sometimes backwards.
  const auto nest = [&](int64_t count, int64_t element, int64_t& size, int64_t& at) {
    int64_t stride = size + static_cast<int64_t>(rng() % 3) * element;
    size = stride * count;
    if (rng() % 4 == 0) {
      at += stride * (count - 1);
      stride = -stride;
    }
    return stride;
  };
  for (size_t i = 3; i-- > 0;) {
    job.t_lhs_stride[i] = nest(job.t_count[i], job.lhs_element(), lhs_size, lhs_at);
  }
  for (size_t i = 4; i-- > 0;) {
    job.m_lhs_stride[i] = nest(job.m_count[i], job.lhs_element(), lhs_size, lhs_at);
  }
  for (size_t i = 2; i-- > 0;) {
    job.n_rhs_stride[i] = nest(job.n_count[i], job.rhs_element(), rhs_size, rhs_at);
    job.n_out_stride[i] = nest(job.n_count[i], 4, out_size, out_at);
  }
  for (size_t i = 3; i-- > 0;) {
    job.k_rhs_stride[i] = nest(job.k_count[i], job.rhs_element(), rhs_size, rhs_at);
  }
  for (size_t i = 3; i-- > 0;) {
    job.t_rhs_stride[i] = nest(job.t_count[i], job.rhs_element(), rhs_size, rhs_at);
  }
  for (size_t i = 4; i-- > 0;) {
    job.m_out_stride[i] = nest(job.m_count[i], 4, out_size, out_at);
  }
  owned.lhs.resize(static_cast<size_t>(lhs_size));
  owned.rhs.resize(static_cast<size_t>(rhs_size));
  owned.out.resize(static_cast<size_t>(out_size / 4));
  fill(owned.lhs, job.lhs_is_bf16, rng, values);
  fill(owned.rhs, job.rhs_is_bf16, rng, values);
  for (uint32_t& v : owned.out) {
    v = random_f32(rng, values);
  }
  job.lhs = owned.lhs.data() + lhs_at;
  job.rhs = owned.rhs.data() + rhs_at;
  job.out = reinterpret_cast<uint8_t*>(owned.out.data()) + out_at;
  return owned;
}

}  // namespace tpu::test
