// What the kernels with vectors of columns share: blocks of rows by one packed panel, computed in
// the results' place or in a buffer. Included by one unit per instruction set; everything is
// internal to it.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

// Fetches into the second-level cache: operands come from memory, and there are several times as
// many fetches under way as for the first level (20 against 8 GB/s a thread on a Zen 4).
inline __attribute__((always_inline)) void fetch(const void* at) { __builtin_prefetch(at, 0, 2); }

constexpr int64_t kLine = 64;  // bytes, of the caches

// What a block computes: rows of lhs by pointer, a packed panel, running values by pointer.
// Operands in slots of 4 bytes, as MxuKernelSet::slot_terms says.
struct BlockArgs {
  const float* const* rows;
  const int64_t* segment_at;
  const MxuSegment* segments;
  int64_t segment_count;
  const float* rhs;
  float* const* out;
  bool zero_start;
  bool last;
};

// Columns of a packed row of the panel: whole vectors of the kernel.
inline int64_t panel_width(const MxuPanel& panel, int64_t vector) {
  return (panel.count + vector - 1) / vector * vector;
}

// Whether the results of a row follow each other.
inline bool in_order(const MxuBlockArgs& a, const MxuPanel& panel) {
  return panel.out_columns == nullptr && a.n_out_stride == 4;
}

// Whether blocks are whole vectors in their place.
inline bool is_dense(const MxuBlockArgs& a, const MxuPanel& panel, int64_t vector) {
  return panel.count % vector == 0 && in_order(a, panel);
}

// Running values of a block that cannot be computed in place: columns apart, or fewer than whole
// vectors.
template <class K>
struct Edge {
  float values[K::kMostRows][K::kPanel] __attribute__((aligned(64)));

  static int64_t column(const MxuBlockArgs& a, const MxuPanel& panel, int64_t n) {
    return panel.out_columns != nullptr ? panel.out_columns[n] : n * a.n_out_stride;
  }
  void load(const MxuBlockArgs& a, const MxuPanel& panel, int64_t row, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
      const uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
      std::memset(values[i], 0, sizeof values[i]);
      if (in_order(a, panel)) {
        std::memcpy(values[i], out, static_cast<size_t>(panel.count) * sizeof(float));
        continue;
      }
      for (int64_t n = 0; n < panel.count; ++n) {
        std::memcpy(&values[i][n], out + column(a, panel, n), sizeof(float));
      }
    }
  }
  void store(const MxuBlockArgs& a, const MxuPanel& panel, int64_t row, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) {
      uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
      if (in_order(a, panel)) {
        std::memcpy(out, values[i], static_cast<size_t>(panel.count) * sizeof(float));
        continue;
      }
      for (int64_t n = 0; n < panel.count; ++n) {
        std::memcpy(out + column(a, panel, n), &values[i][n], sizeof(float));
      }
    }
  }
};

// Whether the results of these rows begin with lines of the cache. `out`: of the panel.
inline bool begin_lines(const uint8_t* out, const int64_t* row_out, int64_t rows) {
  uintptr_t bits = 0;
  for (int64_t i = 0; i < rows; ++i) {
    bits |= reinterpret_cast<uintptr_t>(out + row_out[i]);
  }
  return bits % kLine == 0;
}

// Moves finished results to their place around the caches; false when they are not whole lines.
template <class K>
bool stream_rows(const MxuBlockArgs& a, const MxuPanel& panel, int64_t row, int64_t rows,
                 const Edge<K>& edge) {
  constexpr int64_t kHalfLine = 8;  // floats
  if (!begin_lines(a.out + panel.out_offset, a.row_out + row, rows)) {
    return false;
  }
  for (int64_t i = 0; i < rows; ++i) {
    auto* const out = reinterpret_cast<float*>(a.out + a.row_out[row + i] + panel.out_offset);
    for (int64_t n = 0; n < panel.count; n += kHalfLine) {
      _mm256_stream_ps(out + n, _mm256_load_ps(edge.values[i] + n));
    }
  }
  return true;
}

// K computes blocks: at most kMostRows rows by a panel of kPanel columns, in vectors of kWidth.
template <class K>
void multiply_panel(const MxuBlockArgs& a, int64_t p, const float* rhs) {
  const MxuPanel& panel = a.panels[p];
  const K kernel(a);
  const int64_t vectors = (panel.count + K::kWidth - 1) / K::kWidth;
  const bool dense = is_dense(a, panel, K::kWidth);
  // Single lines by turns are not worth it.
  const bool stream =
      a.stream_out && dense && a.zero_start && a.last && panel.count * 4 % (2 * kLine) == 0;
  const bool direct = dense && !stream;
  Edge<K> edge;
  float* out[K::kMostRows];
  BlockArgs args{.rows = nullptr,
                 .segment_at = a.segment_at,
                 .segments = a.segments,
                 .segment_count = a.segment_count,
                 .rhs = rhs,
                 .out = out,
                 .zero_start = a.zero_start,
                 .last = a.last};
  // Blocks of nearly equal height: 25 rows are five blocks of five.
  const int64_t height = kernel.height();
  const int64_t blocks = (a.rows + height - 1) / height;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t row = a.rows * block / blocks;
    const int64_t rows = a.rows * (block + 1) / blocks - row;
    for (int64_t i = 0; i < rows; ++i) {
      out[i] = direct ? reinterpret_cast<float*>(a.out + a.row_out[row + i] + panel.out_offset)
                      : edge.values[i];
      __builtin_prefetch(out[i], 1);
    }
    if (!direct && !a.zero_start) {
      edge.load(a, panel, row, rows);
    }
    args.rows = a.row_at + row;
    kernel.run(rows, vectors, args);
    if (!direct && !(stream && stream_rows(a, panel, row, rows, edge))) {
      edge.store(a, panel, row, rows);
    }
  }
}

template <class K>
void multiply_panels(const MxuBlockArgs& a) {
  const auto* rhs = static_cast<const float*>(a.packed_rhs);
  for (int64_t p = 0; p < a.panel_count; ++p) {
    if (p >= a.first_panel) {
      multiply_panel<K>(a, p, rhs);
    }
    rhs += K::panel_slots(a, a.panels[p]);
  }
  if (a.stream_out) {
    _mm_sfence();
  }
}

}  // namespace
}  // namespace tpu::model
