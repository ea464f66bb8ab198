// Kernel of the fast engine for lhs with many zeros (behind a relu, say): one row of lhs and eight
// vectors of columns at a time, visiting only the non-zero elements. Its bits are those of the
// dense kernel, so that the choice between them is free. Included by one unit per instruction set;
// everything is internal to it.
//
// Why terms with a zero of lhs may be left out. Such a term adds +0 or -0 to a chain, if rhs is
// finite there (pack_rhs looks; else the dense kernel runs). In round to nearest
//   x + (+-0) = x for x != 0, NaN and infinities included;   +0 + (+-0) = +0;
//   -0 + (-0) = -0;   -0 + (+0) = +0.
// So a term that is left out can only leave a -0 where the law has +0. Call that the difference; it
// is the only one that can be, at every step:
// - Chains start at +0. A chain becomes -0 when a tiny negative sum is flushed. If the chain is -0
//   here and +0 in the law, a later product p != 0 gives the same sum for both (a zero adds nothing
//   to the exact p, which is then rounded and flushed once), and p = +-0 keeps +0 in the law and
//   gives +-0 here: equal, or the same difference.
// - even + odd: if one is not zero, the sign of the other's zero does not matter. If both are
// zeros,
//   the sum is -0 only if both are -0: here -0, in the law -0 or +0.
// - running + sum: likewise. It differs only if the result here is -0.
// - The terms left out at the end of a short segment are +0 x +0 and are zeros of lhs like others.
// A running value of exactly -0 behind a segment is therefore the only sign of a difference; such a
// segment of a row is computed again, densely, from the running value before it. -0 is rare there:
// a sum starts at +0 and x + (-x) = +0, so that it takes a flushed sum or an output that began so.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kSparseRows = 96;     // of a block, at most
constexpr int64_t kSparseSegments = 8;  // of a K block, at most
constexpr uint32_t kEvenTerms = 0x55555555U;

// Non-zero elements of lhs by segment and row.
struct LhsMasks {
  uint32_t of[kSparseSegments][kSparseRows];
  int64_t count = 0;

  explicit LhsMasks(const MxuBlockArgs& a) {
    for (int64_t s = 0; s < a.segment_count; ++s) {
      const uint32_t keep = 0xffffffffU >> (kMxuSegment - a.segments[s].k);
      for (int64_t row = 0; row < a.rows; ++row) {
        const int64_t at = a.row_at[row] - a.lhs_first + a.segment_at[s];
        uint64_t word = 0;
        std::memcpy(&word, a.lhs_bits + at / 8, sizeof word);
        of[s][row] = static_cast<uint32_t>(word >> (at % 8)) & keep;
        count += __builtin_popcount(of[s][row]);
      }
    }
  }
};

// A segment of a row and eight vectors of columns, from panels that lie `pitch` floats apart.
template <class V>
struct SparseSegment {
  using F = typename V::F;
  static constexpr int kVectors = 8;  // enough accumulators to hide the latency of an FMA
  static constexpr int64_t kPanels = kVectors / V::kVectors;
  static constexpr int64_t kPanelWidth = V::kWidth * V::kVectors;
  static constexpr uint64_t kPanelBytes = kPanelWidth * sizeof(float);
  static constexpr int64_t kColumns = V::kWidth * kVectors;

  const float* rhs[kPanels];

  // Of term k = offset / kPanelBytes.
  inline __attribute__((always_inline)) F weight(uint64_t offset, int v) const {
    const auto* panel = reinterpret_cast<const uint8_t*>(rhs[v / V::kVectors]);
    return V::load(reinterpret_cast<const float*>(panel + offset) + v % V::kVectors * V::kWidth);
  }

  // The terms of `mask`, ascending.
  inline __attribute__((always_inline)) void chain(const float* lhs, uint32_t mask,
                                                   F (&acc)[kVectors]) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[v] = V::zero();
    }
    for (uint64_t rest = mask; rest != 0;) {
      uint64_t k = _tzcnt_u64(rest);
      rest = _blsr_u64(rest);
      const F x = V::broadcast(lhs + k);
      k *= kPanelBytes;
      __asm__("" : "+r"(k));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        acc[v] = V::fma(x, weight(k, v), acc[v]);
      }
    }
  }

  // running = running + (even + odd)
  inline __attribute__((always_inline)) void add(const float* lhs, uint32_t mask,
                                                 float* running) const {
    alignas(64) float even[kColumns];
    F acc[kVectors];
    chain(lhs, mask & kEvenTerms, acc);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V::store(even + v * V::kWidth, acc[v]);
    }
    chain(lhs, mask & ~kEvenTerms, acc);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[v] = V::add(V::load(even + v * V::kWidth), acc[v]);
      V::store(running + v * V::kWidth, V::add(V::load(running + v * V::kWidth), acc[v]));
    }
  }

  // The same with all terms, and those beyond K as one +0.
  void add_dense(const float* lhs, int64_t terms, float* running) const {
    for (int v = 0; v < kVectors; ++v) {
      F sum = V::zero();
      for (int64_t first = 0; first < 2; ++first) {
        F chain = V::zero();
        for (int64_t k = first; k < terms; k += 2) {
          chain = V::fma(V::broadcast(lhs + k), weight(static_cast<uint64_t>(k) * kPanelBytes, v),
                         chain);
        }
        if (terms <= kMxuSegment - 2 + first) {
          chain = V::add(chain, V::zero());
        }
        sum = first == 0 ? chain : V::add(sum, chain);
      }
      V::store(running + v * V::kWidth, V::add(V::load(running + v * V::kWidth), sum));
    }
  }

  static void add_zero(float* running) {
    for (int v = 0; v < kVectors; ++v) {
      V::store(running + v * V::kWidth, V::add(V::load(running + v * V::kWidth), V::zero()));
    }
  }
};

// Rows of one segment, in a function of its own for the sake of registers.
template <class V>
__attribute__((noinline)) void add_sparse_rows(const SparseSegment<V> segment,
                                               const float* const* lhs, int64_t at,
                                               const uint32_t* masks, int64_t rows,
                                               float* running) {
#pragma GCC unroll 1
  for (int64_t i = 0; i < rows; ++i, running += SparseSegment<V>::kColumns) {
    const float* next = lhs[i + 4 < rows ? i + 4 : i] + at;
    __builtin_prefetch(next);
    __builtin_prefetch(next + 16);
    segment.add(lhs[i] + at, masks[i], running);
  }
}

// A block of rows by one group of panels.
template <class V>
class SparseGroup {
 public:
  using S = SparseSegment<V>;
  static constexpr int64_t kPanels = S::kPanels;

  // Panels from `panel` on that this kernel takes: whole ones that are computed in place.
  static bool takes(const MxuBlockArgs& a, int64_t panel) {
    if (panel + kPanels > a.panel_count || a.n_out_stride != sizeof(float)) {
      return false;
    }
    for (int64_t p = 0; p < kPanels; ++p) {
      if (a.panels[panel + p].count != S::kPanelWidth ||
          a.panels[panel + p].out_columns != nullptr) {
        return false;
      }
    }
    return true;
  }

  SparseGroup(const MxuBlockArgs& a, const LhsMasks& masks, int64_t panel, const float* rhs)
      : a_(a), masks_(masks), panels_(a.panels + panel), rhs_(rhs) {}

  // Running values of some rows and a segment of rhs stay in the first-level cache.
  void run() {
    for (int64_t row = 0; row < a_.rows; row += kRows) {
      const int64_t rows = a_.rows - row < kRows ? a_.rows - row : kRows;
      for (int64_t i = 0; i < rows; ++i) {
        load(row + i, running_[i]);
      }
      for (int64_t s = 0, k = 0; s < a_.segment_count; k += a_.segments[s++].k) {
        add_sparse_rows<V>(segment(k), a_.row_at + row, a_.segment_at[s], masks_.of[s] + row, rows,
                           running_[0]);
        for (int64_t i = 0; a_.segments[s].pad && i < rows; ++i) {
          S::add_zero(running_[i]);
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        if (any_minus_zero(running_[i])) {
          compute_dense(row + i, running_[i]);
        }
        store(row + i, running_[i]);
      }
    }
  }

 private:
  using F = typename V::F;
  static constexpr int64_t kRows = 48;

  S segment(int64_t k) const {
    S segment;
    for (int64_t p = 0; p < kPanels; ++p) {
      segment.rhs[p] = rhs_ + (p * a_.k + k) * S::kPanelWidth;
    }
    return segment;
  }

  float* out(int64_t row, int64_t panel) const {
    return reinterpret_cast<float*>(a_.out + a_.row_out[row] + panels_[panel].out_offset);
  }

  void load(int64_t row, float* running) const {
    if (a_.zero_start) {
      std::memset(running, 0, S::kColumns * sizeof(float));
      return;
    }
    for (int64_t p = 0; p < kPanels; ++p) {
      std::memcpy(running + p * S::kPanelWidth, out(row, p), S::kPanelWidth * sizeof(float));
    }
  }

  void store(int64_t row, const float* running) const {
    for (int64_t p = 0; p < kPanels; ++p, running += S::kPanelWidth) {
      float* const to = out(row, p);
      for (int64_t n = 0; n < S::kPanelWidth; n += V::kWidth) {
        const F value = V::load(running + n);
        V::storeu(to + n, a_.last ? V::canonical(value) : value);
      }
    }
  }

  static bool any_minus_zero(const float* running) {
    bool any = false;
    for (int64_t n = 0; n < S::kColumns; n += V::kWidth) {
      any |= V::any_minus_zero(V::load(running + n));
    }
    return any;
  }

  // From what the row began with.
  void compute_dense(int64_t row, float* running) const {
    load(row, running);
    for (int64_t s = 0, k = 0; s < a_.segment_count; k += a_.segments[s++].k) {
      segment(k).add_dense(a_.row_at[row] + a_.segment_at[s], a_.segments[s].k, running);
      if (a_.segments[s].pad) {
        S::add_zero(running);
      }
    }
  }

  const MxuBlockArgs& a_;
  const LhsMasks& masks_;
  const MxuPanel* panels_;
  const float* rhs_;
  alignas(64) float running_[kRows][S::kColumns];
};

}  // namespace
}  // namespace tpu::model
