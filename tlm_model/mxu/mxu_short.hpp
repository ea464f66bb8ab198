// What kernels for commands of few terms share, whose results take longer to store than to compute:
// chunks of rows are finished over all columns, one chunk after the other, so that stores go
// through memory in order. All chains and running values stay in registers. Included by one unit
// per instruction set; everything is internal to it.
//
// Of all the +0 that the semantics add, only the last is added. Why: computations that differ in
// the sign of zeros only go on to differ in nothing else, since x + (+-0) = x for x != 0 and a
// product with a zero is a zero; the last +0 turns -0 into +0. So the +0 of terms beyond K and of
// the other taps' empty segments may go, a chain may begin with its first product instead of +0,
// and the running value with the first sum. The command's last tile must have empty segments
// (`pads`), or there is no last +0. Between K blocks a result may be -0 where the semantics have
// +0: the last block ends with +0 whichever kernel computes it.
#pragma once

#include "mxu/mxu_panel.hpp"

namespace tpu::model {
namespace {

// A chunk of rows by one panel.
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

using ShortFn = void (*)(const ShortArgs&);

// Block::run<kStream>(args, row) computes Block::kRows rows by Block::kColumns columns, Tail::run a
// single row. kStream: results go around the caches.
template <class Block, class Tail, bool kStream>
void short_rows(const ShortArgs& given) {
  constexpr int64_t kFetchRows = 16;
  const ShortArgs args = given;  // what is stored may not change it
  const int64_t fetch_end = args.rows + args.ahead - Block::kRows;
  int64_t row = 0;
  for (; row + Block::kRows <= args.rows; row += Block::kRows) {
    if (!kStream && row + kFetchRows <= fetch_end) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < Block::kRows; ++i) {
        const uint8_t* const next = args.out + args.row_out[row + kFetchRows + i];
#pragma GCC unroll 4
        for (int64_t byte = 0; byte < Block::kColumns * 4; byte += kLine) {
          fetch(next + byte);
        }
      }
    }
    Block::template run<kStream>(args, row);
  }
  for (; row < args.rows; ++row) {
    Tail::template run<kStream>(args, row);
  }
}

// With stores into the caches, and around them.
template <class Block, class Tail>
inline constexpr ShortFn kShortRows[2] = {short_rows<Block, Tail, false>,
                                          short_rows<Block, Tail, true>};

// Whether this is a single segment that ends a command: all of it, or what is left for the last K
// block.
inline bool ends_in_one_segment(const MxuBlockArgs& a) {
  return a.segment_count == 1 && a.last && a.pads;
}

// K: the blocks for panels whose results are not whole vectors in their place, as multiply_panels()
// wants them. pick(vectors): kShortRows of the block for panels of so many vectors.
template <class K, class Pick>
void multiply_chunks(const MxuBlockArgs& a, Pick pick) {
  constexpr int64_t kChunk = 24;  // rows
  const bool stream = a.stream_out && a.zero_start && a.last;
  for (int64_t row = 0; row < a.rows; row += kChunk) {
    const int64_t rows = a.rows - row < kChunk ? a.rows - row : kChunk;
    const auto* rhs = static_cast<const float*>(a.packed_rhs);
    for (int64_t p = 0; p < a.panel_count; ++p) {
      const MxuPanel& panel = a.panels[p];
      if (p >= a.first_panel && is_dense(a, panel, K::kWidth)) {
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
        const bool lines =
            stream && panel.count * 4 % kLine == 0 && begin_lines(args.out, args.row_out, rows);
        pick(panel.count / K::kWidth)[lines ? 1 : 0](args);
      } else if (p >= a.first_panel && row == 0) {
        multiply_panel<K>(a, p, rhs);
      }
      rhs += K::panel_slots(a, panel);
    }
  }
  if (stream) {
    _mm_sfence();
  }
}

}  // namespace
}  // namespace tpu::model
