// Kernels of the fast engine for FMA instruction sets, as templates over a vector type V (AVX2 or
// AVX-512): blocks of up to V::kRows rows by V::kVectors vectors of columns. With V::kBothChains a
// segment's chains grow side by side, in half of the registers each. Without, the even chain runs
// over all accumulators of a block and is kept aside, then the odd one: blocks of twice the rows,
// for which the second-level cache brings rhs half as often. Included by one unit per instruction
// set; everything is internal to it.
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
    pad(2 * steps, acc);
  }

  // + 0 for a chain that ends before term `end` of a segment, where `end` is not behind it.
  static inline __attribute__((always_inline)) void pad(int64_t end, F (&acc)[MR][NV]) {
    if (end >= kMxuSegment) {
      return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = V::add(acc[i][v], V::zero());
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

// The running values that follow those at c behind a segment of this sum.
template <class V>
inline __attribute__((always_inline)) typename V::F next_running(const float* c, typename V::F sum,
                                                                 const Ends& ends) {
  typename V::F running = V::add(ends.start ? V::zero() : V::loadu(c), sum);
  running = ends.pad ? V::add(running, V::zero()) : running;
  return ends.last ? V::canonical(running) : running;
}

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
  store([&](const float* c, typename V::F sum) { return next_running<V>(c, sum, ends); });
}

// One segment with both chains in registers.
template <class V, int MR, int NV, bool kWhole>
inline __attribute__((always_inline)) void add_both(const BlockArgs& args, int64_t at,
                                                    int64_t terms, const float* b,
                                                    const Ends& ends) {
  using C = Chain<V, MR, NV>;
  using F = typename V::F;
  const float* a[MR];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    a[i] = args.rows[i] + at;
  }
  F even[MR][NV];
  F odd[MR][NV];
  C::clear(even);
  C::clear(odd);
  if constexpr (kWhole) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kMxuSegment; k += 2) {
      C::step(a, k, b + k * C::kWidth, even);
      C::step(a, k + 1, b + (k + 1) * C::kWidth, odd);
    }
  } else {
    int64_t k = 0;
    for (; k + 1 < terms; k += 2) {
      C::step(a, k, b + k * C::kWidth, even);
      C::step(a, k + 1, b + (k + 1) * C::kWidth, odd);
    }
    if (k < terms) {
      C::step(a, k, b + k * C::kWidth, even);
    }
    C::pad(terms + 1, even);
    C::pad(terms, odd);
  }
  C::add(even, odd);
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
    float* c = args.out[i];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      V::storeu(c + v * V::kWidth, next_running<V>(c + v * V::kWidth, even[i][v], ends));
    }
  }
}

template <class V, int MR, int NV, bool kWhole>
inline __attribute__((always_inline)) void add_any(const BlockArgs& args, int64_t at, int64_t terms,
                                                   const float* b, const Ends& ends) {
  if constexpr (V::kBothChains) {
    add_both<V, MR, NV, kWhole>(args, at, terms, b, ends);
  } else {
    add_segment<V, MR, NV, kWhole>(args, at, terms, b, ends);
  }
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
      add_any<V, MR, NV, true>(args, args.segment_at[s], kMxuSegment, b, ends);
    } else {
      add_any<V, MR, NV, false>(args, args.segment_at[s], segment.k, b, ends);
    }
    b += segment.k * NV * V::kWidth;
  }
}

template <class V>
using BlockFn = void (*)(const BlockArgs&);

// By rows and vectors, 1-based.
template <class V>
struct BlockTable {
  BlockFn<V> whole[V::kRows + 1][5] = {};
  template <int NV>
  constexpr void fill() {
    whole[1][NV] = block<V, 1, NV>;
    whole[2][NV] = block<V, 2, NV>;
    whole[3][NV] = block<V, 3, NV>;
    if constexpr (V::kRows == 6) {
      whole[4][NV] = block<V, 4, NV>;
      whole[5][NV] = block<V, 5, NV>;
      whole[6][NV] = block<V, 6, NV>;
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

// The blocks of the FMA kernels, as multiply_panels() wants them.
template <class V>
class FmaBlocks {
 public:
  static constexpr int64_t kWidth = V::kWidth;
  static constexpr int64_t kPanel = V::kWidth * V::kVectors;
  static constexpr int64_t kMostRows = V::kRows;

  explicit FmaBlocks(const MxuBlockArgs&) {}
  static int64_t height() { return V::kRows; }
  static int64_t panel_slots(const MxuBlockArgs& a, const MxuPanel& panel) {
    return a.k * panel_width(panel, V::kWidth);
  }
  void run(int64_t rows, int64_t vectors, const BlockArgs& args) const {
    static constexpr BlockTable<V> table;
    table.whole[rows][vectors](args);
  }
};

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
