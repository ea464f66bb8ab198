// Operands of the AMX kernels: lhs as bf16 in rows of whole segments, rhs as tiles of 1 KiB,
// [panel][segment][columns 0-15, 16-31][16 pairs of k][16 columns][even, odd]. Terms and columns
// beyond the operands are +0. Included by one unit; everything is internal to it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "mxu/mxu_amx_tiles.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

inline __mmask16 first_16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffU : count <= 0 ? 0U : (1U << count) - 1U);
}

inline __mmask32 first_32(int64_t count) {
  return count >= 32 ? 0xffffffffU : count <= 0 ? 0U : (1U << count) - 1U;
}

// To nearest even, subnormals to signed zero, whatever MXCSR says. NaN keeps the upper part of its
// payload, which nobody sees: results that are NaN become the canonical one.
inline __m512i round_two(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// The first `count` of 32 consecutive elements as bf16, zeros behind them.
template <bool kBf16>
inline __attribute__((always_inline)) __m512i load_32(const uint8_t* from, int64_t count) {
  if constexpr (kBf16) {
    return _mm512_maskz_loadu_epi16(first_32(count), from);
  } else {
    return round_two(_mm512_maskz_loadu_ps(first_16(count), from),
                     _mm512_maskz_loadu_ps(first_16(count - 16), from + 64));
  }
}

// The first `count` of 16 consecutive elements of each as bf16, zeros behind them.
template <bool kBf16>
inline __attribute__((always_inline)) __m512i load_16_and_16(const uint8_t* low,
                                                             const uint8_t* high,
                                                             __mmask16 low_mask,
                                                             __mmask16 high_mask) {
  if constexpr (kBf16) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(low_mask, low)),
                              _mm256_maskz_loadu_epi16(high_mask, high), 1);
  } else {
    return round_two(_mm512_maskz_loadu_ps(low_mask, low), _mm512_maskz_loadu_ps(high_mask, high));
  }
}

// ---- lhs

constexpr int64_t kFetchBytes = 1024;  // lhs is read in order: so far ahead

inline void fetch_128(const uint8_t* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(at + 64), _MM_HINT_T0);
}

// f32 only: bf16 is read in place.
void amx_round_range(const uint8_t* from, bool /*is_bf16*/, int64_t count, float* to,
                     uint8_t* /*bits*/) {
  auto* out = reinterpret_cast<uint8_t*>(to);
  for (; count >= 32; count -= 32, from += 128, out += 64) {
    fetch_128(from + kFetchBytes);
    _mm512_storeu_si512(out, round_two(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 64)));
  }
  if (count > 0) {
    _mm512_mask_storeu_epi16(out, first_32(count), load_32<false>(from, count));
  }
}

// A line more than the terms take, so that rows do not meet in the same cache sets.
inline int64_t packed_pitch(int64_t segments) { return (segments + 1) * kRowBytes; }

template <bool kBf16>
void pack_rows_of_lhs(const MxuBlockArgs& a) {
  auto* to = static_cast<uint8_t*>(a.packed_lhs);
  for (int64_t row = 0; row < a.rows; ++row, to += packed_pitch(a.segment_count)) {
    a.row_at[row] = reinterpret_cast<const float*>(to);
    const uint8_t* from = a.lhs + a.row_lhs[row];
    for (int64_t s = 0; s < a.segment_count; ++s) {
      const uint8_t* segment = from + a.segments[s].lhs_offset;
      fetch_128(segment + kFetchBytes);
      _mm512_store_si512(to + s * kRowBytes, load_32<kBf16>(segment, a.segments[s].k));
    }
  }
}

void amx_pack_lhs(const MxuBlockArgs& a) {
  for (int64_t s = 0; s < a.segment_count; ++s) {
    a.segment_at[s] = s * kRowBytes / kMxuSlotBytes;
  }
  (a.lhs_is_bf16 ? pack_rows_of_lhs<true> : pack_rows_of_lhs<false>)(a);
}

// ---- rhs

// Words i and 16 + i side by side: 16 even terms and 16 odd ones become pairs.
inline __m512i pairs_of(__m512i even_odd) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), even_odd);
}

inline int64_t rhs_column(const MxuBlockArgs& a, const MxuPanel& panel, int64_t n) {
  return panel.rhs_columns != nullptr ? panel.rhs_columns[n] : n * a.n_rhs_stride;
}

inline uint8_t* packed_segment(const MxuBlockArgs& a, int64_t p, int64_t s) {
  return static_cast<uint8_t*>(a.packed_rhs) + (p * a.rhs_pitch + s) * kSegmentBytes;
}

// Columns are consecutive: a pair of rows over all panels at a time, as they lie in memory.
template <bool kBf16>
void pack_row_pair(const MxuBlockArgs& a, int64_t s, int64_t k) {
  constexpr int64_t kHalfBytes = 16 * (kBf16 ? 2 : 4);
  constexpr int64_t kAhead = 8;  // rows
  const MxuSegment& segment = a.segments[s];
  const int64_t* k_rhs = a.k_rhs + segment.k_first;
  const uint8_t* const base = a.rhs + segment.rhs_tap;
  const bool has_odd = k + 1 < segment.k;
  const uint8_t* const even = base + k_rhs[k];
  const uint8_t* const odd = has_odd ? base + k_rhs[k + 1] : even;
  const int64_t next = k + kAhead < segment.k ? k_rhs[k + kAhead] - k_rhs[k] : 0;
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const MxuPanel& panel = a.panels[p];
    uint8_t* const to = packed_segment(a, p, s) + k / 2 * kRowBytes;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t at = panel.rhs_offset + half * kHalfBytes;
      _mm_prefetch(reinterpret_cast<const char*>(even + next + at), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(odd + next + at), _MM_HINT_T0);
      const __mmask16 columns = first_16(panel.count - 16 * half);
      _mm512_store_si512(to + half * kTileBytes,
                         pairs_of(load_16_and_16<kBf16>(even + at, odd + at, columns,
                                                        has_odd ? columns : __mmask16{0})));
    }
  }
}

template <bool kBf16>
void pack_rows_of_rhs(const MxuBlockArgs& a) {
  for (int64_t s = 0; s < a.segment_count; ++s) {
    const int64_t pairs = (a.segments[s].k + 1) / 2;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      pack_row_pair<kBf16>(a, s, 2 * pair);
    }
    const auto left = static_cast<size_t>((kTileRows - pairs) * kRowBytes);
    for (int64_t p = 0; left != 0 && p < a.panel_count; ++p) {
      uint8_t* const to = packed_segment(a, p, s) + pairs * kRowBytes;
      std::memset(to, 0, left);
      std::memset(to + kTileBytes, 0, left);
    }
  }
}

// 16 x 16 words.
inline __attribute__((always_inline)) void transpose_16(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4g + j] holds column 4l + j of rows 4g to 4g + 3 in its lane l.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    const __m512i even_high = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    const __m512i odd_high = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    r[i] = t[i];
  }
}

// k is consecutive and columns lie apart: the pairs of 16 columns, transposed.
template <bool kBf16>
void pack_columns_of_rhs(const MxuBlockArgs& a) {
  constexpr int64_t kAhead = 4 * kRowBytes;  // further segments of the same columns
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const MxuPanel& panel = a.panels[p];
    for (int64_t first = 0; first < kSide; first += 16) {
      for (int64_t s = 0; s < a.segment_count; ++s) {
        const MxuSegment& segment = a.segments[s];
        const uint8_t* const base =
            a.rhs + panel.rhs_offset + segment.rhs_tap + a.k_rhs[segment.k_first];
        __m512i pairs[16];
        for (int64_t n = 0; n < 16; ++n) {
          pairs[n] = _mm512_setzero_si512();
          if (first + n < panel.count) {
            const uint8_t* const column = base + rhs_column(a, panel, first + n);
            fetch_128(column + kAhead);
            pairs[n] = load_32<kBf16>(column, segment.k);
          }
        }
        transpose_16(pairs);
        uint8_t* const to = packed_segment(a, p, s) + first / 16 * kTileBytes;
        for (int64_t pair = 0; pair < 16; ++pair) {
          _mm512_store_si512(to + pair * kRowBytes, pairs[pair]);
        }
      }
    }
  }
}

// 16 columns of a pair of terms, wherever each lies. kWord is an element's bits.
template <class Word>
__m512i gather_pairs(const MxuBlockArgs& a, const MxuPanel& panel, const MxuSegment& segment,
                     int64_t k, int64_t first) {
  alignas(64) Word words[2][16] = {};
  const uint8_t* const base = a.rhs + panel.rhs_offset + segment.rhs_tap;
  for (int64_t n = 0; n < 16 && first + n < panel.count; ++n) {
    const uint8_t* const column = base + rhs_column(a, panel, first + n);
    for (int64_t odd = 0; odd < 2 && k + odd < segment.k; ++odd) {
      std::memcpy(&words[odd][n], column + a.k_rhs[segment.k_first + k + odd], sizeof(Word));
    }
  }
  return pairs_of(load_16_and_16<sizeof(Word) == 2>(reinterpret_cast<const uint8_t*>(words[0]),
                                                    reinterpret_cast<const uint8_t*>(words[1]),
                                                    __mmask16{0xffff}, __mmask16{0xffff}));
}

template <class Word>
void gather_rhs(const MxuBlockArgs& a) {
  for (int64_t p = 0; p < a.panel_count; ++p) {
    for (int64_t s = 0; s < a.segment_count; ++s) {
      for (int64_t pair = 0; pair < 16; ++pair) {
        uint8_t* const to = packed_segment(a, p, s) + pair * kRowBytes;
        for (int64_t half = 0; half < 2; ++half) {
          _mm512_store_si512(
              to + half * kTileBytes,
              gather_pairs<Word>(a, a.panels[p], a.segments[s], 2 * pair, 16 * half));
        }
      }
    }
  }
}

bool amx_pack_rhs(const MxuBlockArgs& a) {
  const int64_t element = a.rhs_is_bf16 ? 2 : 4;
  const bool lists = a.panels[0].rhs_columns != nullptr;  // of all panels or of none
  bool consecutive_k = true;
  for (int64_t s = 0; s < a.segment_count && consecutive_k; ++s) {
    consecutive_k = evenly_apart(a.k_rhs + a.segments[s].k_first, a.segments[s].k, element);
  }
  if (!lists && a.n_rhs_stride == element) {
    (a.rhs_is_bf16 ? pack_rows_of_rhs<true> : pack_rows_of_rhs<false>)(a);
  } else if (consecutive_k) {
    (a.rhs_is_bf16 ? pack_columns_of_rhs<true> : pack_columns_of_rhs<false>)(a);
  } else {
    (a.rhs_is_bf16 ? gather_rhs<uint16_t> : gather_rhs<uint32_t>)(a);
  }
  return false;  // nobody asks
}

size_t amx_lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>(rows * packed_pitch(segments));
}

size_t amx_rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * kSegmentBytes);
}

}  // namespace
}  // namespace tpu::model
