// Kernels of the fast engine for lhs with many zeros (behind a relu, say): one row of lhs and eight
// vectors of columns at a time, visiting only the non-zero elements, or the pairs of AVX512_BF16
// that hold one. Their bits are those of the dense kernels, so that the choice between them is
// free. Templates over a vector type V. Included by one unit per instruction set; everything is
// internal to it.
//
// Why terms with a zero of lhs may be left out. Such a term adds +0 or -0 to a chain, if rhs is
// finite there (pack_rhs looks; else the dense kernel runs). In round to nearest
//   x + (+-0) = x for x != 0, NaN and infinities included;   +0 + (+-0) = +0;
//   -0 + (-0) = -0;   -0 + (+0) = +0.
// So a term that is left out can only leave a -0 where the semantics have +0. Call that the
// difference; it is the only one that can be, at every step:
// - Chains start at +0. A chain becomes -0 when a tiny negative sum is flushed. If the chain is -0
//   here and +0 as specified, a later product p != 0 gives the same sum for both (a zero adds
//   nothing to the exact p, which is then rounded and flushed once), and p = +-0 keeps +0 as
//   specified and gives +-0 here: equal, or the same difference.
// - even + odd: if one is not zero, the sign of the other's zero does not matter. If both are zero,
//   the sum is -0 only if both are -0: here -0, as specified -0 or +0.
// - running + sum: likewise. It differs only if the result here is -0.
// - The terms left out at the end of a short segment are +0 x +0 and are zeros of lhs like others.
// A running value of exactly -0 behind a segment is therefore the only sign of a difference; such a
// segment of a row is computed again, densely, from the running value before it. -0 is rare there:
// a sum starts at +0 and x + (-x) = +0, so that it takes a flushed sum or an output that began so.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "mxu/mxu_fast_kernels.hpp"
#include "mxu/mxu_panel.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kEvenSlots = 0x55555555U;  // even chain, odd chain, even, ...

// Slots of a segment: terms, or pairs of two neighbours of one chain, zeros behind the last.
template <class V>
inline int64_t sparse_slots(int64_t terms) {
  return V::kSlotTerms == 1 ? terms : kMxuSegment / V::kSlotTerms;
}

// Where the bits of one segment's slots of lhs lie.
struct LhsBits {
  const uint8_t* bits;
  const float* first;  // of bit 0
  int64_t at;          // of the segment in a row
  uint32_t keep;       // its slots

  LhsBits(const MxuBlockArgs& a, int64_t s, int64_t slots)
      : bits(a.lhs_bits),
        first(a.lhs_first),
        at(a.segment_at[s]),
        keep(0xffffffffU >> (32 - slots)) {}

  inline __attribute__((always_inline)) uint32_t of(const float* row) const {
    const auto bit = static_cast<uint64_t>(row - first + at);
    uint64_t word = 0;
    std::memcpy(&word, bits + bit / 8, sizeof word);
    return static_cast<uint32_t>(word >> (bit % 8)) & keep;
  }
};

// Whether enough slots of the blocks are zero, from every fourth row.
template <class V>
bool is_sparse(const MxuBlockArgs* blocks, int64_t count) {
  constexpr int64_t kStep = 4;
  int64_t nonzero = 0;
  int64_t all = 0;
  for (int64_t b = 0; b < count; ++b) {
    const MxuBlockArgs& a = blocks[b];
    for (int64_t s = 0; s < a.segment_count; ++s) {
      const int64_t slots = sparse_slots<V>(a.segments[s].k);
      const LhsBits bits(a, s, slots);
      for (int64_t row = 0; row < a.rows; row += kStep) {
        nonzero += __builtin_popcount(bits.of(a.row_at[row]));
      }
      all += (a.rows + kStep - 1) / kStep * slots;
    }
  }
  return static_cast<double>(nonzero) <= V::kSparseBelow * static_cast<double>(all);
}

// A segment of a row and eight vectors of columns, from panels that lie `pitch` floats apart.
template <class V>
struct SparseSegment {
  using F = typename V::F;
  static constexpr int kVectors = 8;  // enough accumulators to hide the latency of an FMA
  static constexpr int64_t kPanels = kVectors / V::kVectors;
  static constexpr int64_t kPanelWidth = V::kWidth * V::kVectors;
  static constexpr int64_t kColumns = V::kWidth * kVectors;

  const float* rhs[kPanels];

  // Of slot k of panels that begin there.
  static inline __attribute__((always_inline)) F weight(const float* const (&panels)[kPanels],
                                                        int64_t k, int v) {
    return V::load(panels[v / V::kVectors] + k * kPanelWidth + v % V::kVectors * V::kWidth);
  }

  // The slots of `mask`, ascending.
  inline __attribute__((always_inline)) void chain(const float* lhs, uint32_t mask,
                                                   F (&acc)[kVectors]) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[v] = V::zero();
    }
    for (uint64_t rest = mask; rest != 0;) {
      const auto k = static_cast<int64_t>(_tzcnt_u64(rest));
      rest = _blsr_u64(rest);
      const F x = V::broadcast(lhs + k);
      // Pointers without an index: Intel's front end takes an FMA from memory with an index as two
      // operations, and it has to be ahead of the arithmetic by what a mispredicted end costs.
      const float* panel[kPanels];
#pragma GCC unroll 4
      for (int64_t p = 0; p < kPanels; ++p) {
        panel[p] = rhs[p] + k * kPanelWidth;
        __asm__("" : "+r"(panel[p]));
      }
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        acc[v] = V::fma(x, weight(panel, 0, v), acc[v]);
      }
    }
  }

  // running = running + (even + odd), from +0 if it is the first segment.
  template <bool kFirst>
  inline __attribute__((always_inline)) void add(const float* lhs, uint32_t mask,
                                                 float* running) const {
    alignas(64) float even[kColumns];
    F acc[kVectors];
    chain(lhs, mask & kEvenSlots, acc);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V::store(even + v * V::kWidth, acc[v]);
    }
    chain(lhs, mask & ~kEvenSlots, acc);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[v] = V::add(V::load(even + v * V::kWidth), acc[v]);
      const F before = kFirst ? V::zero() : V::load(running + v * V::kWidth);
      V::store(running + v * V::kWidth, V::add(before, acc[v]));
    }
  }

  // The same with all slots, and terms beyond K that have none as one +0.
  void add_dense(const float* lhs, int64_t slots, float* running) const {
    for (int v = 0; v < kVectors; ++v) {
      F sum = V::zero();
      for (int64_t first = 0; first < 2; ++first) {
        F chain = V::zero();
        for (int64_t k = first; k < slots; k += 2) {
          chain = V::fma(V::broadcast(lhs + k), weight(rhs, k, v), chain);
        }
        if (V::kSlotTerms == 1 && slots <= kMxuSegment - 2 + first) {
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
template <class V, bool kFirst>
__attribute__((noinline)) void add_sparse_rows(const SparseSegment<V> segment, const LhsBits bits,
                                               const float* const* lhs, int64_t rows,
                                               float* running) {
  const float* row = lhs[0] + bits.at;
  uint32_t mask = bits.of(lhs[0]);
#pragma GCC unroll 1
  for (int64_t i = 1; i <= rows; ++i, running += SparseSegment<V>::kColumns) {
    const float* const next = lhs[i < rows ? i : 0];
    const uint32_t next_mask = bits.of(next);
    __builtin_prefetch(next + bits.at);
    __builtin_prefetch(next + bits.at + kMxuSegment / 2);
    segment.template add<kFirst>(row, mask, running);
    row = next + bits.at;
    mask = next_mask;
  }
}

// A block of rows by one group of panels, over consecutive K blocks.
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

  SparseGroup(const MxuBlockArgs* blocks, int64_t count, int64_t panel)
      : blocks_(blocks), count_(count), panel_(panel), a_(blocks[0]) {}

  // Running values of some rows and a segment of rhs stay in the first-level cache.
  void run() {
    const int64_t parts = (a_.rows + kFetchRows - 1) / kFetchRows * a_.segment_count;
    NextRhs next[kPanels];
    for (int64_t p = 0; p < kPanels; ++p) {
      next[p] = NextRhs(a_, panel_ + p, parts);
    }
    for (int64_t row = 0; row < a_.rows; row += kRows) {
      const int64_t rows = a_.rows - row < kRows ? a_.rows - row : kRows;
      for (int64_t i = 0; i < rows && !a_.zero_start; ++i) {
        load(row + i, running_[i]);
      }
      for_segments([&](const MxuBlockArgs& a, int64_t s, const S& segment, bool first) {
        const auto add = first ? add_sparse_rows<V, true> : add_sparse_rows<V, false>;
        const LhsBits bits(a, s, sparse_slots<V>(a.segments[s].k));
        const int64_t step = a.next_segment_count > 0 ? kFetchRows : kRows;
        for (int64_t i = 0; i < rows; i += step) {
          for (NextRhs& panel : next) {
            panel.fetch_part();
          }
          add(segment, bits, a.row_at + row + i, rows - i < step ? rows - i : step, running_[i]);
        }
        for (int64_t i = 0; a.segments[s].pad && i < rows; ++i) {
          S::add_zero(running_[i]);
        }
      });
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
  static constexpr int64_t kFetchRows = 12;  // between parts of what is fetched meanwhile

  // f(K block, its segment, the segment's rhs, whether results begin at +0 there)
  template <class Fn>
  inline __attribute__((always_inline)) void for_segments(Fn f) const {
    bool first = a_.zero_start;
    for (int64_t b = 0; b < count_; ++b) {
      const MxuBlockArgs& a = blocks_[b];
      const int64_t slots =
          V::kSlotTerms == 1 ? a.k : a.segment_count * sparse_slots<V>(kMxuSegment);
      const int64_t panel = slots * S::kPanelWidth;
      const float* rhs = static_cast<const float*>(a.packed_rhs) + panel_ * panel;
      for (int64_t s = 0; s < a.segment_count; ++s) {
        S segment;
        for (int64_t p = 0; p < kPanels; ++p) {
          segment.rhs[p] = rhs + p * panel;
        }
        f(a, s, segment, first);
        first = false;
        rhs += sparse_slots<V>(a.segments[s].k) * S::kPanelWidth;
      }
    }
  }

  float* out(int64_t row, int64_t panel) const {
    return reinterpret_cast<float*>(a_.out + a_.row_out[row] +
                                    a_.panels[panel_ + panel].out_offset);
  }

  void load(int64_t row, float* running) const {
    for (int64_t p = 0; p < kPanels; ++p, running += S::kPanelWidth) {
      const float* const from = out(row, p);
      for (int64_t n = 0; n < S::kPanelWidth; n += V::kWidth) {
        V::store(running + n, V::loadu(from + n));
      }
    }
  }

  void store(int64_t row, const float* running) const {
    const bool last = blocks_[count_ - 1].last;
    for (int64_t p = 0; p < kPanels; ++p, running += S::kPanelWidth) {
      float* const to = out(row, p);
      for (int64_t n = 0; n < S::kPanelWidth; n += V::kWidth) {
        const F value = V::load(running + n);
        V::storeu(to + n, last ? V::canonical(value) : value);
      }
    }
  }

  static bool any_minus_zero(const float* running) {
    bool any = false;
#pragma GCC unroll 8
    for (int64_t n = 0; n < S::kColumns; n += V::kWidth) {
      any |= V::any_minus_zero(V::load(running + n));
    }
    return any;
  }

  // From what the row began with.
  __attribute__((noinline)) void compute_dense(int64_t row, float* running) const {
    if (a_.zero_start) {
      std::memset(running, 0, S::kColumns * sizeof(float));
    } else {
      load(row, running);
    }
    for_segments([&](const MxuBlockArgs& a, int64_t s, const S& segment, bool) {
      segment.add_dense(a.row_at[row] + a.segment_at[s], sparse_slots<V>(a.segments[s].k), running);
      if (a.segments[s].pad) {
        S::add_zero(running);
      }
    });
  }

  const MxuBlockArgs* blocks_;
  int64_t count_;
  int64_t panel_;
  const MxuBlockArgs& a_;  // the first one
  alignas(64) float running_[kRows][S::kColumns];
};

// Consecutive K blocks of the same rows and panels. Returns how many panels it computed: none if
// lhs is not sparse.
template <class V>
int64_t multiply_nonzero(const MxuBlockArgs* blocks, int64_t count) {
  for (int64_t b = 0; b < count; ++b) {
    if (!blocks[b].rhs_finite) {
      return 0;
    }
  }
  if (!SparseGroup<V>::takes(blocks[0], 0) || !is_sparse<V>(blocks, count)) {
    return 0;
  }
  int64_t panel = 0;
  for (; SparseGroup<V>::takes(blocks[0], panel); panel += SparseGroup<V>::kPanels) {
    SparseGroup<V>(blocks, count, panel).run();
  }
  return panel;
}

}  // namespace
}  // namespace tpu::model
