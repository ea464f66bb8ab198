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

// The rhs that is packed next, fetched while a panel is computed: a part of it beside each block of
// rows. Packing alone would wait for memory.
class NextRhs {
 public:
  NextRhs() = default;
  // That of the `p`-th panel, in `parts` parts.
  NextRhs(const MxuBlockArgs& a, int64_t p, int64_t parts) : a_(&a) {
    if (a.next_segment_count == 0 || p >= a.next_panel_count) {
      return;
    }
    panel_ = &a.next_panels[p];
    const int64_t bytes = a.rhs_is_bf16 ? 2 : 4;
    const MxuSegment& first = a.next_segments[0];
    rows_ = panel_->rhs_columns == nullptr && a.n_rhs_stride == bytes;
    if (!rows_ && !evenly_apart(a.k_rhs + first.k_first, first.k, bytes)) {
      return;
    }
    count_ = rows_ ? first.k : panel_->count;
    length_ = (rows_ ? panel_->count : first.k) * bytes;
    step_ = (a.next_segment_count * count_ + parts - 1) / parts;
  }

  void fetch_part() {
    for (int64_t i = 0; i < step_ && s_ < a_->next_segment_count; ++i) {
      const uint8_t* const run = run_at(a_->next_segments[s_]);
      for (int64_t byte = 0; byte < length_; byte += kLine) {
        fetch(run + byte);
      }
      if (++run_ >= count_) {
        run_ = 0;
        ++s_;
      }
    }
  }

 private:
  // A row of the panel, or a column of the segment.
  const uint8_t* run_at(const MxuSegment& segment) const {
    const uint8_t* const at = a_->rhs + panel_->rhs_offset + segment.rhs_tap;
    const int64_t* const k_rhs = a_->k_rhs + segment.k_first;
    if (rows_) {
      return at + k_rhs[run_ < segment.k ? run_ : 0];
    }
    const int64_t* const columns = panel_->rhs_columns;
    return at + k_rhs[0] + (columns != nullptr ? columns[run_] : run_ * a_->n_rhs_stride);
  }

  const MxuBlockArgs* a_ = nullptr;
  const MxuPanel* panel_ = nullptr;
  bool rows_ = false;
  int64_t count_ = 0;   // runs of a segment
  int64_t length_ = 0;  // bytes of a run
  int64_t step_ = 0;    // runs of a part
  int64_t s_ = 0;
  int64_t run_ = 0;
};

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
  NextRhs next(a, p, blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    next.fetch_part();
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
