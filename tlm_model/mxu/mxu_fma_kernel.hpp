// Kernels of the fast engine for FMA instruction sets, as templates over a vector type V (AVX2 or
// AVX-512): blocks of up to kRows rows by kVectors vectors of columns. A segment runs its even
// chain over all accumulators of a block, keeps them aside, then its odd chain, so that every
// register serves one chain. Included by one unit per instruction set; everything is internal to
// it.
#pragma once

#include "mxu/mxu_fma_pack.hpp"
#include "mxu/mxu_panel.hpp"

namespace tpu::model {
namespace {

// `steps` terms of one chain over MR rows and NV vectors of columns; a[i] and b begin at its first
// k.
template <class V, int MR, int NV>
struct Chain {
  using F = typename V::F;
  static constexpr int64_t kWidth = V::kWidth * NV;

  static inline __attribute__((always_inline)) void step(const float* const (&a)[MR], int64_t k,
                                                         const float* b, F (&acc)[MR][NV]) {
    F w[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      w[v] = V::load(b + v * V::kWidth);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const F x = V::broadcast(a[i] + k);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::fma(x, w[v], acc[i][v]);
      }
    }
  }

  static inline __attribute__((always_inline)) void clear(F (&acc)[MR][NV]) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::zero();
      }
    }
  }

  // The first products of chains.
  static inline __attribute__((always_inline)) void first(const float* const (&a)[MR], int64_t k,
                                                          const float* b, F (&acc)[MR][NV]) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const F x = V::broadcast(a[i] + k);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::mul(x, V::load(b + v * V::kWidth));
      }
    }
  }

  static inline __attribute__((always_inline)) void load(float* const* out, F (&acc)[MR][NV]) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::loadu(out[i] + v * V::kWidth);
      }
    }
  }

  static inline __attribute__((always_inline)) void add(F (&acc)[MR][NV], const F (&more)[MR][NV]) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::add(acc[i][v], more[i][v]);
      }
    }
  }

  // All 16 terms.
  static inline __attribute__((always_inline)) void whole(const float* const (&a)[MR],
                                                          int64_t first, const float* b,
                                                          F (&acc)[MR][NV]) {
    clear(acc);
#pragma GCC unroll 16
    for (int64_t k = 0; k < kMxuSegment; k += 2) {
      step(a, first + k, b + k * kWidth, acc);
    }
  }

  // Fewer: the terms that are left out are +0 x +0, which together turn a -0 into +0.
  static inline __attribute__((always_inline)) void part(const float* const (&a)[MR], int64_t first,
                                                         const float* b, int64_t steps,
                                                         F (&acc)[MR][NV]) {
    clear(acc);
    for (int64_t k = 0; k < 2 * steps; k += 2) {
      step(a, first + k, b + k * kWidth, acc);
    }
    if (steps < kMxuSegment / 2) {
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
          acc[i][v] = V::add(acc[i][v], V::zero());
        }
      }
    }
  }
};

// What a segment does beside its sum, so that short commands pass over the results once.
struct Ends {
  bool start;
  bool pad;
  bool last;
};

// One segment: running = running + (even + odd).
template <class V, int MR, int NV, bool kWhole>
inline __attribute__((always_inline)) void add_segment(const BlockArgs& args, int64_t at,
                                                       int64_t terms, const float* b,
                                                       const Ends& ends) {
  using C = Chain<V, MR, NV>;
  float even[MR][C::kWidth] __attribute__((aligned(64)));
  typename V::F acc[MR][NV];
  const float* a[MR];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    a[i] = args.rows[i] + at;
  }
  if constexpr (kWhole) {
    C::whole(a, 0, b, acc);
  } else {
    C::part(a, 0, b, (terms + 1) / 2, acc);
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      V::store(even[i] + v * V::kWidth, acc[i][v]);
    }
  }
  if constexpr (kWhole) {
    C::whole(a, 1, b + C::kWidth, acc);
  } else {
    C::part(a, 1, b + C::kWidth, terms / 2, acc);
  }
  // result(c, sum): the running values that follow those at c.
  const auto store = [&](auto result) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      float* c = args.out[i];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const typename V::F sum = V::add(V::load(even[i] + v * V::kWidth), acc[i][v]);
        V::storeu(c + v * V::kWidth, result(c + v * V::kWidth, sum));
      }
    }
  };
  if (kWhole && !ends.start && !ends.pad && !ends.last) {
    store([](const float* c, typename V::F sum) { return V::add(V::loadu(c), sum); });
    return;
  }
  store([&](const float* c, typename V::F sum) {
    typename V::F running = V::add(ends.start ? V::zero() : V::loadu(c), sum);
    running = ends.pad ? V::add(running, V::zero()) : running;
    return ends.last ? V::canonical(running) : running;
  });
}

template <class V, int MR, int NV>
void block(const BlockArgs& args) {
  const float* b = args.rhs;
  for (int64_t s = 0; s < args.segment_count; ++s) {
    const MxuSegment& segment = args.segments[s];
    const Ends ends{.start = args.zero_start && s == 0,
                    .pad = segment.pad,
                    .last = args.last && s + 1 == args.segment_count};
    if (segment.k == kMxuSegment) {
      add_segment<V, MR, NV, true>(args, args.segment_at[s], kMxuSegment, b, ends);
    } else {
      add_segment<V, MR, NV, false>(args, args.segment_at[s], segment.k, b, ends);
    }
    b += segment.k * NV * V::kWidth;
  }
}

// A block of a command of few terms whose last tile has empty segments: all chains and running
// values of the block stay in registers, and of all the +0 that the law adds only the last is
// added. Why: computations that differ in the sign of zeros only go on to differ in nothing else,
// since x + (+-0) = x for x != 0 and a product with a zero is a zero; the last +0 turns -0 into
// +0. So the +0 of terms beyond K and of the other taps' empty segments may go, and a chain may
// begin with its first product instead of +0.
template <class V, int MR, int NV>
void short_block(const BlockArgs& args) {
  using F = typename V::F;
  using C = Chain<V, MR, NV>;
  F running[MR][NV];
  if (args.zero_start) {
    C::clear(running);
  } else {
    C::load(args.out, running);
  }
  const float* b = args.rhs;
  for (int64_t s = 0; s < args.segment_count; ++s) {
    const int64_t terms = args.segments[s].k;
    const float* a[MR];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      a[i] = args.rows[i] + args.segment_at[s];
    }
    F even[MR][NV];
    C::first(a, 0, b, even);
    for (int64_t k = 2; k < terms; k += 2) {
      C::step(a, k, b + k * NV * V::kWidth, even);
    }
    if (terms > 1) {
      F odd[MR][NV];
      C::first(a, 1, b + NV * V::kWidth, odd);
      for (int64_t k = 3; k < terms; k += 2) {
        C::step(a, k, b + k * NV * V::kWidth, odd);
      }
      C::add(even, odd);
    }
    C::add(running, even);
    b += terms * NV * V::kWidth;
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      V::storeu(args.out[i] + v * V::kWidth,
                args.last ? V::canonical(V::add(running[i][v], V::zero())) : running[i][v]);
    }
  }
}

template <class V>
using BlockFn = void (*)(const BlockArgs&);

constexpr int64_t kBlockRows = 6;
constexpr int64_t kShortRows = 2;    // 3 x 2 x 4 accumulators and what they multiply: 32 registers
constexpr int64_t kShortTerms = 12;  // of a segment: at most so many for short blocks

// By rows and vectors, 1-based.
template <class V>
struct BlockTable {
  BlockFn<V> whole[kBlockRows + 1][5] = {};
  BlockFn<V> few[kShortRows + 1][5] = {};  // of few terms
  template <int NV>
  constexpr void fill() {
    whole[1][NV] = block<V, 1, NV>;
    whole[2][NV] = block<V, 2, NV>;
    whole[3][NV] = block<V, 3, NV>;
    whole[4][NV] = block<V, 4, NV>;
    whole[5][NV] = block<V, 5, NV>;
    whole[6][NV] = block<V, 6, NV>;
    if constexpr (V::kShortBlocks) {
      few[1][NV] = short_block<V, 1, NV>;
      few[2][NV] = short_block<V, 2, NV>;
    }
  }
  constexpr BlockTable() {
    fill<1>();
    fill<2>();
    if constexpr (V::kVectors == 4) {
      fill<3>();
      fill<4>();
    }
  }
};

template <class V>
bool has_few_terms(const MxuBlockArgs& a) {
  for (int64_t s = 0; s < a.segment_count; ++s) {
    if (a.segments[s].k > kShortTerms) {
      return false;
    }
  }
  return V::kShortBlocks && a.pads;
}

// The blocks of the FMA kernels, as multiply_panels() wants them.
template <class V>
class FmaBlocks {
 public:
  static constexpr int64_t kWidth = V::kWidth;
  static constexpr int64_t kPanel = V::kWidth * V::kVectors;
  static constexpr int64_t kMostRows = kBlockRows;

  explicit FmaBlocks(const MxuBlockArgs& a) : few_(has_few_terms<V>(a)) {}
  int64_t height() const { return few_ ? kShortRows : kBlockRows; }
  bool waits_for_results() const { return few_; }
  static int64_t panel_slots(const MxuBlockArgs& a, const MxuPanel& panel) {
    return a.k * panel_width(panel, V::kWidth);
  }
  void run(int64_t rows, int64_t vectors, const BlockArgs& args) const {
    static constexpr BlockTable<V> table;
    (few_ ? table.few : table.whole)[rows][vectors](args);
  }

 private:
  const bool few_;
};

template <class V>
void fma_multiply(const MxuBlockArgs& a) {
  multiply_panels<FmaBlocks<V>>(a);
}

template <class V>
bool fma_pack_rhs(const MxuBlockArgs& a) {
  return a.rhs_is_bf16 ? pack_panels<V, true>(a) : pack_panels<V, false>(a);
}

inline size_t fma_lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>(rows * lhs_pitch(segments)) * sizeof(float);
}

template <class V>
size_t fma_rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * kMxuSegment * V::kWidth * V::kVectors) *
         sizeof(float);
}

}  // namespace
}  // namespace tpu::model
