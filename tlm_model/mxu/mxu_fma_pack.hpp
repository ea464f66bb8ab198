// Packing for the FMA kernels: operands rounded to bf16 and widened to f32, in the vectors V of
// the instruction set; transposes in 256-bit ones everywhere. Needs flush mode (DAZ rounds
// subnormals to signed zeros). Included by one unit per instruction set; everything is internal to
// it.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "mxu/mxu_fast_kernels.hpp"
#include "mxu/mxu_panel.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kVec = 8;
constexpr int64_t kAhead = 32;  // rows that are fetched before they are packed

// Eight f32 rounded to bf16. Any NaN becomes some NaN: results are canonicalised.
inline __m256 round8(__m256 value) {
  __m256 one = _mm256_set1_ps(1.0F);
  __asm__("" : "+x"(one));                     // the compiler would drop a product with 1
  const __m256 x = _mm256_mul_ps(value, one);  // subnormals to zero
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xffff0000U)));
  return _mm256_or_ps(_mm256_castsi256_ps(rounded), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

inline __m256 round8(const float* from) { return round8(_mm256_loadu_ps(from)); }

// Eight bf16.
inline __m256 widen8(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

inline __m256 widen8(const uint8_t* from) {
  return widen8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// The first `count` of eight f32, +0 behind them.
inline __m256 load_some(const float* from, int64_t count) {
  alignas(32) static constexpr int32_t kMask[2 * kVec] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const auto* const mask = reinterpret_cast<const __m256i*>(kMask + kVec - count);
  return _mm256_maskload_ps(from, _mm256_loadu_si256(mask));
}

// The first `count` of eight bf16, fewer than eight, +0 behind them.
inline __m128i load_some(const uint8_t* from, int64_t count) {
  uint64_t four = 0;
  if ((count & 4) != 0) {
    std::memcpy(&four, from, 8);
    from += 8;
  }
  uint32_t two = 0;
  if ((count & 2) != 0) {
    std::memcpy(&two, from, 4);
    from += 4;
  }
  uint16_t one = 0;
  if ((count & 1) != 0) {
    std::memcpy(&one, from, 2);
  }
  const uint64_t rest = (count & 2) != 0 ? two | uint64_t{one} << 32 : one;
  return (count & 4) != 0 ? _mm_set_epi64x(static_cast<int64_t>(rest), static_cast<int64_t>(four))
                          : _mm_set_epi64x(0, static_cast<int64_t>(rest));
}

// Elements of an operand as floats; V: the vector type, with round() and widen() of its width.
template <class V, bool kBf16>
struct Element {
  using F = typename V::F;
  static constexpr int64_t kBytes = kBf16 ? 2 : 4;

  static inline __attribute__((always_inline)) F load(const uint8_t* from) {
    if constexpr (kBf16) {
      return V::widen(from);
    } else {
      return V::round(reinterpret_cast<const float*>(from));
    }
  }

  static inline __attribute__((always_inline)) __m256 load8(const uint8_t* from) {
    return kBf16 ? widen8(from) : round8(reinterpret_cast<const float*>(from));
  }

  // The first `count` of eight, fewer than eight, +0 behind them.
  static inline __attribute__((always_inline)) __m256 load_some8(const uint8_t* from,
                                                                 int64_t count) {
    if constexpr (kBf16) {
      return widen8(load_some(from, count));
    } else {
      return round8(load_some(reinterpret_cast<const float*>(from), count));
    }
  }

  static float load_one(const uint8_t* from) {
    uint32_t bits = 0;
    std::memcpy(&bits, from, kBytes);
    if constexpr (kBf16) {
      bits <<= 16;
    } else {
      const uint32_t magnitude = bits & 0x7fffffffU;
      if (magnitude < 0x00800000U) {
        bits &= 0x80000000U;
      } else if (magnitude > 0x7f800000U) {
        bits = 0x7fc00000U;
      } else {
        bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
      }
    }
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // Writes whole groups of eight: +0 behind the last element. Meanwhile fetches what lies `ahead`
  // bytes behind each element.
  static void copy(const uint8_t* from, int64_t count, float* to, int64_t ahead) {
    int64_t i = 0;
    for (; i + V::kWidth <= count; i += V::kWidth) {
      fetch(from + i * kBytes + ahead);
      V::storeu(to + i, load(from + i * kBytes));
    }
    for (; i + kVec <= count; i += kVec) {
      _mm256_storeu_ps(to + i, load8(from + i * kBytes));
    }
    if (i < count) {
      _mm256_storeu_ps(to + i, load_some8(from + i * kBytes, count - i));
    }
  }
};

// A bit for each float that is not zero; the last byte may tell of floats beyond `count`.
inline void mark_nonzero(const float* from, int64_t count, uint8_t* bits) {
  for (int64_t i = 0; i < count; i += kVec) {
    const __m256 nonzero =
        _mm256_cmp_ps(_mm256_loadu_ps(from + i), _mm256_setzero_ps(), _CMP_NEQ_UQ);
    bits[i / kVec] = static_cast<uint8_t>(_mm256_movemask_ps(nonzero));
  }
}

template <class V>
void fma_round_range(const uint8_t* from, bool is_bf16, int64_t count, float* to, uint8_t* bits) {
  constexpr int64_t kPiece = 1024;  // marked while it is in the cache
  constexpr int64_t kFetch = 4096;
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t piece = count - i < kPiece ? count - i : kPiece;
    if (is_bf16) {
      Element<V, true>::copy(from + i * 2, piece, to + i, kFetch);
    } else {
      Element<V, false>::copy(from + i * 4, piece, to + i, kFetch);
    }
    if (bits != nullptr) {
      mark_nonzero(to + i, piece, bits + i / kVec);
    }
  }
}

// Row pitch of packed lhs in floats: 16 extra keep the rows of a block out of the same cache sets.
inline int64_t lhs_pitch(int64_t segments) { return segments * kMxuSegment + 16; }

template <class V, bool kBf16>
void pack_rows(const MxuBlockArgs& a) {
  using E = Element<V, kBf16>;
  const int64_t pitch = lhs_pitch(a.segment_count);
  auto* packed = static_cast<float*>(a.packed_lhs);
  int64_t at = 0;
  for (int64_t s = 0; s < a.segment_count; ++s) {
    a.segment_at[s] = at;
    at += a.segments[s].k;
  }
  for (int64_t row = 0; row < a.rows; ++row) {
    const uint8_t* from = a.lhs + a.row_lhs[row];
    float* to = packed + row * pitch;
    a.row_at[row] = to;
    for (int64_t s = 0; s < a.segment_count;) {
      // Segments of a tap follow each other in memory: one run.
      const int64_t first = a.segments[s].lhs_offset;
      int64_t k = 0;
      do {
        k += a.segments[s++].k;
      } while (s < a.segment_count && a.segments[s].lhs_offset == first + k * E::kBytes);
      E::copy(from + first, k, to, k * E::kBytes);  // the next K block's, as a rule
      to += k;
    }
    if (a.lhs_bits != nullptr) {
      mark_nonzero(a.row_at[row], a.k, a.lhs_bits + row * pitch / kVec);
    }
  }
}

template <class V>
void fma_pack_lhs(const MxuBlockArgs& a) {
  if (a.lhs_is_bf16) {
    pack_rows<V, true>(a);
  } else {
    pack_rows<V, false>(a);
  }
}

inline void transpose8(__m256 (&r)[kVec]) {
  const __m256 a0 = _mm256_unpacklo_ps(r[0], r[1]);
  const __m256 a1 = _mm256_unpackhi_ps(r[0], r[1]);
  const __m256 a2 = _mm256_unpacklo_ps(r[2], r[3]);
  const __m256 a3 = _mm256_unpackhi_ps(r[2], r[3]);
  const __m256 a4 = _mm256_unpacklo_ps(r[4], r[5]);
  const __m256 a5 = _mm256_unpackhi_ps(r[4], r[5]);
  const __m256 a6 = _mm256_unpacklo_ps(r[6], r[7]);
  const __m256 a7 = _mm256_unpackhi_ps(r[6], r[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44);
  const __m256 b1 = _mm256_shuffle_ps(a0, a2, 0xee);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44);
  const __m256 b3 = _mm256_shuffle_ps(a1, a3, 0xee);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44);
  const __m256 b5 = _mm256_shuffle_ps(a4, a6, 0xee);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44);
  const __m256 b7 = _mm256_shuffle_ps(a5, a7, 0xee);
  r[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
  r[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
  r[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
  r[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
  r[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  r[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  r[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  r[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

// A segment of one panel: `width` floats a k, columns beyond the panel zero.
template <class V, bool kBf16>
struct PanelPacker {
  using E = Element<V, kBf16>;
  const MxuBlockArgs& a;
  const MxuPanel& panel;
  const MxuSegment& segment;
  int64_t width;
  float* to;

  int64_t column(int64_t n) const {
    return panel.rhs_columns != nullptr ? panel.rhs_columns[n] : n * a.n_rhs_stride;
  }

  void pack() const {
    const uint8_t* base = a.rhs + panel.rhs_offset + segment.rhs_tap;
    const int64_t* k_rhs = a.k_rhs + segment.k_first;
    if (panel.rhs_columns == nullptr && a.n_rhs_stride == E::kBytes) {
      for (int64_t k = 0; k < segment.k; ++k) {
        E::copy(base + k_rhs[k], panel.count, to + k * width, 0);
        clear(to + k * width);
      }
      return;
    }
    KRun runs[kMxuSegment];
    const int64_t run_count = find_runs(k_rhs, runs);
    if (run_count == 1 || run_count * kVec <= segment.k) {
      pack_transposed(base, runs, run_count);
      return;
    }
    for (int64_t k = 0; k < segment.k; ++k) {
      for (int64_t n = 0; n < panel.count; ++n) {
        to[k * width + n] = E::load_one(base + k_rhs[k] + column(n));
      }
      clear(to + k * width);
    }
  }

  void clear(float* row) const {
    for (int64_t n = panel.count; n < width; ++n) {
      row[n] = 0.0F;
    }
  }

  // Terms that follow each other in memory, as the pixels of an image's row do.
  struct KRun {
    int64_t first;  // term of the segment
    int64_t count;
    int64_t bytes;  // of the first one
  };

  // Those of the segment. Returns how many there are.
  int64_t find_runs(const int64_t* k_rhs, KRun* runs) const {
    int64_t count = 0;
    for (int64_t k = 0; k < segment.k; ++k) {
      if (k > 0 && k_rhs[k] == k_rhs[k - 1] + E::kBytes) {
        ++runs[count - 1].count;
      } else {
        runs[count++] = {.first = k, .count = 1, .bytes = k_rhs[k]};
      }
    }
    return count;
  }

  // Columns lie apart and k in a few runs: 8x8 transposes.
  void pack_transposed(const uint8_t* base, const KRun* runs, int64_t run_count) const {
    alignas(32) float edge[kVec][kMxuSegment + kVec];  // the last run ends with a group of eight
    const int64_t next = width * a.n_rhs_stride;       // the panel that follows, as a rule
    for (int64_t n = 0; n < width; n += kVec) {
      const int64_t columns = panel.count - n < kVec ? panel.count - n : kVec;
      const bool whole = columns == kVec && segment.k % kVec == 0 && run_count == 1;
      for (int64_t i = 0; i < kVec && !whole; ++i) {
        if (i >= columns) {
          std::memset(edge[i], 0, sizeof edge[i]);
        }
        for (int64_t r = 0; i < columns && r < run_count; ++r) {
          E::copy(base + column(n + i) + runs[r].bytes, runs[r].count, edge[i] + runs[r].first, 0);
        }
      }
      for (int64_t i = 0; i < columns; ++i) {
        fetch(base + runs[0].bytes + column(n + i) + next);
        fetch(base + runs[0].bytes + column(n + i) + next + 64);
      }
      for (int64_t k = 0; k < segment.k; k += kVec) {
        __m256 r[kVec];
        for (int64_t i = 0; i < kVec; ++i) {
          r[i] = whole ? E::load8(base + runs[0].bytes + column(n + i) + k * E::kBytes)
                       : _mm256_load_ps(edge[i] + k);
        }
        transpose8(r);
        for (int64_t i = 0; i < kVec && k + i < segment.k; ++i) {
          _mm256_storeu_ps(to + (k + i) * width + n, r[i]);
        }
      }
    }
  }
};

inline bool is_number(__m256 value) {
  return _mm256_movemask_ps(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)) == 0;
}

// False if there is an infinity or a NaN. Whole vectors.
inline bool all_finite(const float* from, const float* end) {
  __m256 zeros[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (; end - from > kVec; from += 2 * kVec) {
    zeros[0] = _mm256_fmadd_ps(_mm256_load_ps(from), _mm256_setzero_ps(), zeros[0]);
    zeros[1] = _mm256_fmadd_ps(_mm256_load_ps(from + kVec), _mm256_setzero_ps(), zeros[1]);
  }
  if (from < end) {
    zeros[0] = _mm256_fmadd_ps(_mm256_load_ps(from), _mm256_setzero_ps(), zeros[0]);
  }
  return is_number(_mm256_add_ps(zeros[0], zeros[1]));
}

// Walks over the rows of rhs from a K block on; stays on the command's last one.
class RhsRow {
 public:
  explicit RhsRow(const MxuBlockArgs& a) : a_(a) {}
  void step() {
    if (++k_ == a_.segments[s_].k) {
      if (s_ + 1 == a_.segments_left) {
        --k_;
        return;
      }
      ++s_;
      k_ = 0;
    }
  }
  const uint8_t* at(int64_t column) const {
    const MxuSegment& segment = a_.segments[s_];
    return a_.rhs + column + segment.rhs_tap + a_.k_rhs[segment.k_first + k_];
  }

 private:
  const MxuBlockArgs& a_;
  int64_t s_ = 0;
  int64_t k_ = 0;
};

// Full panels side by side: whole rows of rhs are read once, in order. False if an element is
// infinite or NaN: then it is not zero when multiplied with zero.
template <class V, bool kBf16>
bool pack_wide(const MxuBlockArgs& a, const MxuPanel* panels, int64_t count, float* to) {
  using E = Element<V, kBf16>;
  constexpr int64_t nr = V::kWidth * V::kVectors;
  const int64_t panel_floats = a.k * nr;
  RhsRow row(a);
  RhsRow ahead(a);
  for (int64_t i = 0; i < kAhead; ++i) {
    ahead.step();
  }
  typename V::F zeros[2] = {V::zero(), V::zero()};
  for (int64_t k = 0; k < a.k; ++k, to += nr, row.step(), ahead.step()) {
    const uint8_t* from = row.at(panels[0].rhs_offset);
    const uint8_t* next = ahead.at(panels[0].rhs_offset);
    float* panel = to;
    for (int64_t p = 0; p < count; ++p, panel += panel_floats) {
      for (int64_t byte = 0; byte < nr * E::kBytes; byte += kLine, next += kLine) {
        fetch(next);
      }
#pragma GCC unroll 4
      for (int64_t v = 0; v < V::kVectors; ++v, from += V::kWidth * E::kBytes) {
        const typename V::F value = E::load(from);
        V::store(panel + v * V::kWidth, value);
        zeros[v % 2] = V::fma(value, V::zero(), zeros[v % 2]);
      }
    }
  }
  return !V::any_nan(V::add(zeros[0], zeros[1]));
}

// Panels follow each other, each [k][width]. True if all is finite.
template <class V, bool kBf16>
bool pack_panels(const MxuBlockArgs& a) {
  constexpr int64_t nr = V::kWidth * V::kVectors;
  auto* to = static_cast<float*>(a.packed_rhs);
  bool finite = true;
  const bool rows = a.n_rhs_stride == Element<V, kBf16>::kBytes;
  for (int64_t p = 0; p < a.panel_count;) {
    int64_t side = 0;  // full panels that follow each other in memory
    while (rows && p + side < a.panel_count && a.panels[p + side].rhs_columns == nullptr &&
           a.panels[p + side].count == nr &&
           a.panels[p + side].rhs_offset == a.panels[p].rhs_offset + side * nr * a.n_rhs_stride) {
      ++side;
    }
    if (side > 0) {
      finite = pack_wide<V, kBf16>(a, a.panels + p, side, to) && finite;
      to += side * a.k * nr;
      p += side;
      continue;
    }
    const int64_t width = panel_width(a.panels[p], V::kWidth);
    const float* const panel = to;
    for (int64_t s = 0; s < a.segment_count; ++s) {
      PanelPacker<V, kBf16>{a, a.panels[p], a.segments[s], width, to}.pack();
      to += a.segments[s].k * width;
    }
    finite = finite && all_finite(panel, to);
    ++p;
  }
  return finite;
}

}  // namespace
}  // namespace tpu::model
