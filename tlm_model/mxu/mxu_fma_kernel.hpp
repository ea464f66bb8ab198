// Kernels of the fast engine for FMA instruction sets, as templates over a vector type V (AVX2 or
// AVX-512). Operands are rounded to bf16 and widened to f32 when they are packed. A segment runs
// its even chain over all accumulators of a block, keeps them aside, then its odd chain, so that
// every register serves one chain. Included by one unit per instruction set; everything is internal
// to it.
#pragma once

#include <cstring>

#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

// Row pitch of packed lhs in floats: 16 extra keep the rows of a block out of the same cache sets.
inline int64_t lhs_pitch(int64_t segments) { return segments * kMxuSegment + 16; }

inline uint32_t round_bits(uint32_t bits) {
  const uint32_t exponent = bits & 0x7f800000U;
  const uint32_t mantissa = bits & 0x007fffffU;
  if (exponent == 0) {
    return bits & 0x80000000U;
  }
  if (exponent == 0x7f800000U) {
    return mantissa != 0 ? 0x7fc00000U : bits;
  }
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
}

inline float load_rounded(const uint8_t* at, bool is_bf16) {
  uint32_t bits = 0;
  if (is_bf16) {
    uint16_t half = 0;
    std::memcpy(&half, at, sizeof(half));
    bits = static_cast<uint32_t>(half) << 16;
  } else {
    std::memcpy(&bits, at, sizeof(bits));
    bits = round_bits(bits);
  }
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `count` consecutive elements, rounded and widened.
template <class V>
void copy_rounded(const uint8_t* from, bool is_bf16, int64_t count, float* to) {
  int64_t i = 0;
  if (is_bf16) {
    for (; i + V::kWidth <= count; i += V::kWidth) {
      V::store(to + i, V::widen_bf16(from + i * 2));
    }
    for (; i < count; ++i) {
      to[i] = load_rounded(from + i * 2, true);
    }
  } else {
    for (; i + V::kWidth <= count; i += V::kWidth) {
      V::store(to + i, V::round_f32(from + i * 4));
    }
    for (; i < count; ++i) {
      to[i] = load_rounded(from + i * 4, false);
    }
  }
}

template <class V>
void fma_pack_lhs(const MxuBlockArgs& a) {
  const int64_t pitch = lhs_pitch(a.segment_count);
  const int64_t padded = (a.rows + V::kRows - 1) / V::kRows * V::kRows;
  auto* packed = static_cast<float*>(a.packed_lhs);
  for (int64_t row = 0; row < padded; ++row) {
    float* to = packed + row * pitch;
    for (int64_t s = 0; s < a.segment_count; ++s, to += kMxuSegment) {
      const MxuSegment& segment = a.segments[s];
      const int64_t k = row < a.rows ? segment.k : 0;
      if (k > 0) {
        copy_rounded<V>(a.lhs + a.row_lhs[row] + segment.lhs_offset, a.lhs_is_bf16, k, to);
      }
      for (int64_t i = k; i < kMxuSegment; ++i) {
        to[i] = 0.0F;
      }
    }
  }
}

template <class V>
void fma_pack_rhs(const MxuBlockArgs& a) {
  constexpr int64_t nr = V::kWidth * 2;
  auto* to = static_cast<float*>(a.packed_rhs);
  const int64_t element = a.rhs_is_bf16 ? 2 : 4;
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const MxuPanel& panel = a.panels[p];
    for (int64_t s = 0; s < a.segment_count; ++s, to += kMxuSegment * nr) {
      const MxuSegment& segment = a.segments[s];
      const uint8_t* base = a.rhs + panel.rhs_offset + segment.rhs_tap;
      const int64_t* k_rhs = a.k_rhs + segment.k_first;
      if (a.n_rhs_stride == element || panel.count == 1) {
        for (int64_t k = 0; k < segment.k; ++k) {
          copy_rounded<V>(base + k_rhs[k], a.rhs_is_bf16, panel.count, to + k * nr);
          for (int64_t n = panel.count; n < nr; ++n) {
            to[k * nr + n] = 0.0F;
          }
        }
      } else {
        // Columns lie apart (transposed load): read along k, write across.
        float column[kMxuSegment];
        for (int64_t n = 0; n < panel.count; ++n) {
          const uint8_t* from = base + n * a.n_rhs_stride;
          const bool run = segment.k > 1 &&
                           k_rhs[segment.k - 1] - k_rhs[0] == (segment.k - 1) * element &&
                           k_rhs[1] - k_rhs[0] == element;
          if (run) {
            copy_rounded<V>(from + k_rhs[0], a.rhs_is_bf16, segment.k, column);
          } else {
            for (int64_t k = 0; k < segment.k; ++k) {
              column[k] = load_rounded(from + k_rhs[k], a.rhs_is_bf16);
            }
          }
          for (int64_t k = 0; k < segment.k; ++k) {
            to[k * nr + n] = column[k];
          }
        }
        for (int64_t k = 0; k < segment.k; ++k) {
          for (int64_t n = panel.count; n < nr; ++n) {
            to[k * nr + n] = 0.0F;
          }
        }
      }
      std::memset(to + segment.k * nr, 0,
                  static_cast<size_t>((kMxuSegment - segment.k) * nr) * sizeof(float));
    }
  }
}

// One chain (even: first = 0, odd: 1) of a segment over MR rows and two vectors of columns.
template <class V, int MR>
inline __attribute__((always_inline)) void chain(const float* a, int64_t pitch, const float* b,
                                                 typename V::F (&acc)[MR][2]) {
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    acc[i][0] = V::zero();
    acc[i][1] = V::zero();
  }
  for (int k = 0; k < 16; ++k, a += 2, b += 4 * V::kWidth) {
    const typename V::F w0 = V::load(b);
    const typename V::F w1 = V::load(b + V::kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const typename V::F x = V::broadcast(a + i * pitch);
      acc[i][0] = V::fma(x, w0, acc[i][0]);
      acc[i][1] = V::fma(x, w1, acc[i][1]);
    }
  }
}

// c[i] points to 2 * kWidth running values of row i.
template <class V, int MR>
void block(const float* a, int64_t pitch, const float* b, int64_t segments, float* const* c,
           bool zero_start, bool last) {
  constexpr int64_t width = V::kWidth;
  float even[MR][2 * V::kWidth] __attribute__((aligned(64)));
  typename V::F acc[MR][2];
  for (int64_t s = 0; s < segments; ++s, a += kMxuSegment, b += kMxuSegment * 2 * width) {
    chain<V, MR>(a, pitch, b, acc);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      V::store(even[i], acc[i][0]);
      V::store(even[i] + width, acc[i][1]);
    }
    chain<V, MR>(a + 1, pitch, b + 2 * width, acc);
    const bool start = zero_start && s == 0;
    const bool finish = last && s + 1 == segments;
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const typename V::F sum = V::add(V::load(even[i] + v * width), acc[i][v]);
        typename V::F running = V::add(start ? V::zero() : V::loadu(c[i] + v * width), sum);
        if (finish) {
          running = V::canonical(running);
        }
        V::storeu(c[i] + v * width, running);
      }
    }
  }
}

template <class V>
using BlockFn = void (*)(const float*, int64_t, const float*, int64_t, float* const*, bool, bool);

template <class V>
struct BlockTable {
  BlockFn<V> fn[13] = {};
  constexpr BlockTable() {
    fn[1] = block<V, 1>;
    fn[2] = block<V, 2>;
    fn[3] = block<V, 3>;
    fn[4] = block<V, 4>;
    fn[5] = block<V, 5>;
    fn[6] = block<V, 6>;
    if constexpr (V::kRows == 12) {
      fn[7] = block<V, 7>;
      fn[8] = block<V, 8>;
      fn[9] = block<V, 9>;
      fn[10] = block<V, 10>;
      fn[11] = block<V, 11>;
      fn[12] = block<V, 12>;
    }
  }
};

template <class V>
void fma_multiply(const MxuBlockArgs& a) {
  static constexpr BlockTable<V> table;
  constexpr int64_t nr = V::kWidth * 2;
  const int64_t pitch = lhs_pitch(a.segment_count);
  const auto* lhs = static_cast<const float*>(a.packed_lhs);
  const auto* rhs = static_cast<const float*>(a.packed_rhs);
  float edge[12][nr] __attribute__((aligned(64)));
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const MxuPanel& panel = a.panels[p];
    const float* b = rhs + p * a.segment_count * kMxuSegment * nr;
    const bool direct = panel.count == nr && a.n_out_stride == 4;
    for (int64_t row = 0; row < a.rows; row += V::kRows) {
      const int64_t mr = a.rows - row < V::kRows ? a.rows - row : V::kRows;
      float* c[12];
      for (int64_t i = 0; i < mr; ++i) {
        uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
        c[i] = direct ? reinterpret_cast<float*>(out) : edge[i];
        if (!direct && !a.zero_start) {
          for (int64_t n = 0; n < nr; ++n) {
            edge[i][n] = 0.0F;
            if (n < panel.count) {
              std::memcpy(&edge[i][n], out + n * a.n_out_stride, sizeof(float));
            }
          }
        }
      }
      table.fn[mr](lhs + row * pitch, pitch, b, a.segment_count, c, a.zero_start, a.last);
      if (!direct) {
        for (int64_t i = 0; i < mr; ++i) {
          uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
          for (int64_t n = 0; n < panel.count; ++n) {
            std::memcpy(out + n * a.n_out_stride, &edge[i][n], sizeof(float));
          }
        }
      }
    }
  }
}

template <class V>
size_t fma_lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>((rows + V::kRows - 1) / V::kRows * V::kRows * lhs_pitch(segments)) *
         sizeof(float);
}

template <class V>
size_t fma_rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * kMxuSegment * V::kWidth * 2) * sizeof(float);
}

}  // namespace
}  // namespace tpu::model
