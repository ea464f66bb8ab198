// FMA kernels for commands of few terms, whose results take longer to store than to compute: all
// chains and running values stay in registers, and a chunk of rows is finished over all columns
// before the next, so that stores go through memory in order. Included by one unit per instruction
// set; everything is internal to it.
//
// Of all the +0 that the law adds, only the last is added. Why: computations that differ in the
// sign of zeros only go on to differ in nothing else, since x + (+-0) = x for x != 0 and a product
// with a zero is a zero; the last +0 turns -0 into +0. So the +0 of terms beyond K and of the other
// taps' empty segments may go, a chain may begin with its first product instead of +0, and the
// running value with the first sum. The command's last tile must have empty segments (`pads`), or
// there is no last +0.
#pragma once

#include "mxu/mxu_fma_kernel.hpp"

namespace tpu::model {
namespace {

// Where a chunk of rows lies, by one panel.
struct ShortArgs {
  const float* const* lhs;  // of the chunk's rows
  const int64_t* row_out;
  uint8_t* out;  // of the panel, which row_out counts from
  int64_t rows;
  const int64_t* segment_at;
  const MxuSegment* segments;
  int64_t segment_count;
  const float* rhs;
  bool zero_start;
  bool last;
  int64_t ahead;  // rows behind the chunk's whose places are known
};

// MR rows by NV vectors. kOne: the command has one segment. kTerms: of every segment; 0: as the
// segments say.
template <class V, int MR, int NV, bool kOne, int kTerms>
struct ShortBlock {
  using F = typename V::F;
  using C = Chain<V, MR, NV>;

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

template <class V, int MR, int NV, bool kOne, int kTerms, bool kStream>
void short_rows(const ShortArgs& given) {
  constexpr int64_t kFetchRows = 16;
  const ShortArgs args = given;  // what is stored may not change it
  const int64_t fetch_end = args.rows + args.ahead - MR;
  int64_t row = 0;
  for (; row + MR <= args.rows; row += MR) {
    if (!kStream && row + kFetchRows <= fetch_end) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < MR; ++i) {
        const uint8_t* const next = args.out + args.row_out[row + kFetchRows + i];
#pragma GCC unroll 4
        for (int64_t byte = 0; byte < NV * V::kWidth * 4; byte += kLine) {
          fetch(next + byte);
        }
      }
    }
    ShortBlock<V, MR, NV, kOne, kTerms>::template run<kStream>(args, row);
  }
  for (; row < args.rows; ++row) {
    ShortBlock<V, 1, NV, kOne, kTerms>::template run<kStream>(args, row);
  }
}

using ShortFn = void (*)(const ShortArgs&);

constexpr int64_t kShortTerms = 12;  // of each of several segments
constexpr int64_t kFixedTerms = 4;   // kernels of their own up to so many

// By vectors and terms of every segment, 1-based (0: any number); with stores into the caches and
// around them. Blocks have as many rows as the registers hold.
template <class V>
struct ShortTable {
  ShortFn one[5][2] = {};
  ShortFn many[5][kFixedTerms + 1][2] = {};
  template <int NV, int kTerms>
  constexpr void fill_terms() {
    many[NV][kTerms][0] = short_rows<V, 2, NV, false, kTerms, false>;
    many[NV][kTerms][1] = short_rows<V, 2, NV, false, kTerms, true>;
  }
  template <int NV>
  constexpr void fill() {
    one[NV][0] = short_rows<V, 3, NV, true, 0, false>;
    one[NV][1] = short_rows<V, 3, NV, true, 0, true>;
    fill_terms<NV, 0>();
    fill_terms<NV, 1>();
    fill_terms<NV, 2>();
    fill_terms<NV, 3>();
    fill_terms<NV, 4>();
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

// Whether short_multiply() is for these blocks.
inline bool has_few_terms(const MxuBlockArgs& a) {
  const bool one = a.segment_count == 1 && a.last;
  for (int64_t s = 0; s < a.segment_count && !one; ++s) {
    if (a.segments[s].k > kShortTerms) {
      return false;
    }
  }
  return a.pads;
}

// Terms of every segment, 0 if they differ or are more than kernels are made for.
inline int64_t fixed_terms(const MxuBlockArgs& a) {
  const int64_t terms = a.segments[0].k;
  for (int64_t s = 1; s < a.segment_count; ++s) {
    if (a.segments[s].k != terms) {
      return 0;
    }
  }
  return terms <= kFixedTerms ? terms : 0;
}

template <class V>
void short_multiply(const MxuBlockArgs& a) {
  static constexpr ShortTable<V> table;
  constexpr int64_t kChunk = 24;  // rows
  const int64_t terms = fixed_terms(a);
  const bool stream = a.stream_out && a.zero_start && a.last;
  for (int64_t row = 0; row < a.rows; row += kChunk) {
    const int64_t rows = a.rows - row < kChunk ? a.rows - row : kChunk;
    const auto* rhs = static_cast<const float*>(a.packed_rhs);
    for (int64_t p = 0; p < a.panel_count; ++p) {
      const MxuPanel& panel = a.panels[p];
      const int64_t width = panel_width(panel, V::kWidth);
      if (p >= a.first_panel && is_dense(a, panel, V::kWidth)) {
        const ShortArgs args{.lhs = a.row_at + row,
                             .row_out = a.row_out + row,
                             .out = a.out + panel.out_offset,
                             .rows = rows,
                             .segment_at = a.segment_at,
                             .segments = a.segments,
                             .segment_count = a.segment_count,
                             .rhs = rhs,
                             .zero_start = a.zero_start,
                             .last = a.last,
                             .ahead = a.rows_left - row - rows};
        const int64_t vectors = width / V::kWidth;
        bool lines = stream && width * 4 % kLine == 0;
        for (int64_t i = 0; lines && i < rows; ++i) {
          lines = reinterpret_cast<uintptr_t>(args.out + args.row_out[i]) % kLine == 0;
        }
        (a.segment_count == 1 ? table.one[vectors]
                              : table.many[vectors][terms])[lines ? 1 : 0](args);
      } else if (p >= a.first_panel && row == 0) {
        multiply_panel<FmaBlocks<V>>(a, p, rhs);
      }
      rhs += a.k * width;
    }
  }
  if (stream) {
    _mm_sfence();
  }
}

template <class V>
void fma_multiply(const MxuBlockArgs& a) {
  if (has_few_terms(a)) {
    short_multiply<V>(a);
  } else {
    multiply_panels<FmaBlocks<V>>(a);
  }
}

}  // namespace
}  // namespace tpu::model
