// FMA kernels for commands of few terms: those that end in one segment, or have a few terms a tap.
// Included by one unit per instruction set; everything is internal to it.
#pragma once

#include "mxu/mxu_fma_kernel.hpp"
#include "mxu/mxu_short.hpp"
#include "mxu/mxu_sparse.hpp"

namespace tpu::model {
namespace {

// MR rows by NV vectors. kOne: there is one segment. kTerms: of every segment; 0: as the
// segments say.
template <class V, int MR, int NV, bool kOne, int kTerms>
struct ShortBlock {
  using F = typename V::F;
  using C = Chain<V, MR, NV>;
  static constexpr int64_t kRows = MR;
  static constexpr int64_t kColumns = C::kWidth;

  // acc = acc + the products of term k, or these alone. Weights are loaded once for all rows: the
  // compiler would load them for each.
  template <bool kFirst>
  static inline __attribute__((always_inline)) void step(const float* const (&a)[MR], int64_t k,
                                                         const float* b, F (&acc)[MR][NV]) {
    F w[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      w[v] = V::load(b + k * C::kWidth + v * V::kWidth);
      V::keep(w[v]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const F x = V::broadcast(a[i] + k);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        acc[i][v] = kFirst ? V::mul(x, w[v]) : V::fma(x, w[v], acc[i][v]);
      }
    }
  }

  // sum = even + odd
  static inline __attribute__((always_inline)) void segment(const float* const (&a)[MR],
                                                            int64_t segment_terms, const float* b,
                                                            F (&sum)[MR][NV]) {
    const int64_t terms = kTerms != 0 ? kTerms : segment_terms;
    step<true>(a, 0, b, sum);
    if (terms == 1) {
      return;
    }
    F odd[MR][NV];
    step<true>(a, 1, b, odd);
    if constexpr (kTerms != 0) {
#pragma GCC unroll 8
      for (int64_t k = 2; k < kTerms; ++k) {
        step<false>(a, k, b, k % 2 == 0 ? sum : odd);
      }
    } else {
      int64_t k = 2;
      for (; k + 1 < terms; k += 2) {
        step<false>(a, k, b, sum);
        step<false>(a, k + 1, b, odd);
      }
      if (k < terms) {
        step<false>(a, k, b, sum);
      }
    }
    C::add(sum, odd);
  }

  // running = running + the other segments
  static inline __attribute__((always_inline)) void more(const ShortArgs& args,
                                                         const float* const (&rows)[MR],
                                                         F (&running)[MR][NV]) {
    const float* b = args.rhs;
    for (int64_t s = 1; s < args.segment_count; ++s) {
      b += (kTerms != 0 ? kTerms : args.segments[s - 1].k) * C::kWidth;
      const float* a[MR];
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) {
        a[i] = rows[i] + args.segment_at[s];
      }
      F sum[MR][NV];
      segment(a, args.segments[s].k, b, sum);
      C::add(running, sum);
    }
  }

  template <bool kStream>
  static inline __attribute__((always_inline)) void run(const ShortArgs& args, int64_t row) {
    const float* rows[MR];
    const float* a[MR];
    float* out[MR];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      rows[i] = args.lhs[row + i];
      a[i] = rows[i] + args.segment_at[0];
      out[i] = reinterpret_cast<float*>(args.out + args.row_out[row + i]);
    }
    F running[MR][NV];
    segment(a, args.segments[0].k, args.rhs, running);
    if (!args.zero_start) {
      F before[MR][NV];
      C::load(out, before);
      C::add(running, before);
    }
    if constexpr (!kOne) {
      more(args, rows, running);
    }
    if (args.last) {
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
          running[i][v] = V::canonical(V::add(running[i][v], V::zero()));
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        if constexpr (kStream) {
          V::stream(out[i] + v * V::kWidth, running[i][v]);
        } else {
          V::storeu(out[i] + v * V::kWidth, running[i][v]);
        }
      }
    }
  }
};

constexpr int64_t kShortTerms = 12;  // of each of several segments
constexpr int64_t kFixedTerms = 4;   // kernels of their own up to so many

// By vectors and terms of every segment, 1-based (0: any number). Blocks have as many rows as the
// registers hold.
template <class V>
struct ShortTable {
  const ShortFn* one[5] = {};
  const ShortFn* many[5][kFixedTerms + 1] = {};
  template <int MR, int NV, bool kOne, int kTerms>
  static constexpr const ShortFn* rows() {
    return kShortRows<ShortBlock<V, MR, NV, kOne, kTerms>, ShortBlock<V, 1, NV, kOne, kTerms>>;
  }
  template <int NV>
  constexpr void fill() {
    one[NV] = rows<3, NV, true, 0>();
    many[NV][0] = rows<2, NV, false, 0>();
    many[NV][1] = rows<2, NV, false, 1>();
    many[NV][2] = rows<2, NV, false, 2>();
    many[NV][3] = rows<2, NV, false, 3>();
    many[NV][4] = rows<2, NV, false, 4>();
  }
  constexpr ShortTable() {
    fill<1>();
    fill<2>();
    if constexpr (V::kVectors == 4) {
      fill<3>();
      fill<4>();
    }
  }
};

inline bool has_few_terms(const MxuBlockArgs& a) {
  for (int64_t s = 0; s < a.segment_count; ++s) {
    if (a.segments[s].k > kShortTerms) {
      return ends_in_one_segment(a);
    }
  }
  return a.pads;
}

template <class V>
void fma_multiply(const MxuBlockArgs& a) {
  static constexpr ShortTable<V> table;
  if (!has_few_terms(a)) {
    multiply_panels<FmaBlocks<V>>(a);
    return;
  }
  // Each of several short segments is a tap: all have as many terms.
  const int64_t terms = a.segments[0].k <= kFixedTerms ? a.segments[0].k : 0;
  multiply_chunks<FmaBlocks<V>>(a, [&](int64_t vectors) {
    return a.segment_count == 1 ? table.one[vectors] : table.many[vectors][terms];
  });
}

// Few terms are computed faster than looked at.
template <class V>
int64_t fma_multiply_sparse(const MxuBlockArgs* blocks, int64_t count) {
  return count == 1 && has_few_terms(blocks[0]) ? 0 : multiply_nonzero<V>(blocks, count);
}

}  // namespace
}  // namespace tpu::model
