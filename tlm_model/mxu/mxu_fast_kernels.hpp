// The part of the fast engine that is compiled once per instruction set. Plain structs and function
// pointers only: a unit built for a newer instruction set must not instantiate library templates
// that others could link to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tpu/spec/rtl_units.hpp"

namespace tpu::model {

// Rows of a segment of two chains.
inline constexpr int64_t kMxuSegment = spec::rtl::kMxuSegmentRows;
static_assert(kMxuSegment == 32 && spec::rtl::kMxuChains == 2, "what the kernels are written for");
inline constexpr int64_t kMxuSlotBytes = 4;  // of row_at and segment_at

// A run of at most 32 consecutive k of one tile.
struct MxuSegment {
  int64_t lhs_offset;  // bytes from a row's base
  int64_t rhs_tap;     // bytes, of the tap
  int64_t k_first;     // index into k_rhs
  int64_t k;           // 1..32
  bool pad;            // empty segments follow in its tile: they add +0 to the running value
};

// At most nr columns of the result that are computed together. Consecutive in the inner n run
// (n_rhs_stride and n_out_stride apart) unless a list gives each column's place; a list of rhs
// alone is one whose results lie n_out_stride apart.
struct MxuPanel {
  int64_t rhs_offset;          // bytes of the first column; 0 with a list of rhs
  int64_t out_offset;          // 0 with a list of results
  int64_t count;               // 1..nr
  const int64_t* rhs_columns;  // bytes by column, or null
  const int64_t* out_columns;
};

// Everything a kernel set needs for one (K block, row block, column block); all arrays are the
// engine's scratch.
struct MxuBlockArgs {
  const uint8_t* lhs;
  const uint8_t* rhs;
  uint8_t* out;
  bool lhs_is_bf16;
  bool rhs_is_bf16;
  const int64_t* row_lhs;  // byte offsets of the block's rows
  const int64_t* row_out;
  int64_t rows;
  int64_t rows_left;  // of the command, these included: their places are known
  const MxuSegment* segments;
  int64_t segment_count;
  int64_t segments_left;  // of the command, these included: what follows may be fetched ahead
  int64_t k;              // of all segments
  const int64_t* k_rhs;   // byte offsets of every k of a tap
  int64_t n_rhs_stride;   // bytes between columns of the inner run
  int64_t n_out_stride;
  const MxuPanel* panels;
  int64_t panel_count;
  int64_t first_panel;  // those before are done
  bool zero_start;      // else start from out
  bool last;            // canonicalise NaN
  bool pads;            // the command's last segment has `pad`
  bool stream_out;      // results are many, of few terms each: better stored around the caches
  // Segments and panels whose rhs is packed next, for kernels to fetch meanwhile (those of long
  // commands, without AMX), of as many panels as they compute; counts of 0 if there is none.
  const MxuSegment* next_segments;
  int64_t next_segment_count;
  const MxuPanel* next_panels;
  int64_t next_panel_count;
  void* packed_lhs;
  void* packed_rhs;
  // Segments from one panel of packed_rhs to the next, of sets with rhs_piece; others lie as close
  // as segment_count says.
  int64_t rhs_pitch;
  // Sets with round_range: where each row's operands lie, rounded, and where each segment begins in
  // a row, in slots of 4 bytes: an element widened to f32, or two of bf16. Written by pack_lhs, or
  // by the engine when it has rounded a whole range of lhs or lhs is read in place (then aligned
  // to its elements only).
  const float** row_at;
  int64_t* segment_at;
  // One bit for each slot from lhs_first on, set where a term of it is not zero. Written along with
  // the slots; readable for 8 bytes beyond the last. Null if multiply_sparse will not be asked.
  const float* lhs_first;
  uint8_t* lhs_bits;
  bool rhs_finite;  // what pack_rhs returned
};

struct MxuKernelSet {
  int64_t nr;              // columns of a panel
  int64_t block_segments;  // segments of a K block
  // Commands of at most few_rows rows have K blocks of few_rows_segments instead, if K has more
  // than two of them: rhs of one is fetched while that before is computed. 0: no such commands.
  int64_t few_rows;
  int64_t few_rows_segments;
  int64_t block_rows;    // rows packed at once, at most
  int64_t outer_rows;    // rows that go through all of K together, at most
  int64_t block_panels;  // panels packed at once
  // Where lhs needs no packing: panels packed at once, and bytes of all their K.
  int64_t placed_panels;
  int64_t placed_rhs_room;
  int64_t slot_terms;  // elements of lhs in 4 bytes of row_at
  // A rounded range of lhs serves segments that are whole multiples of so many terms, and begin
  // whole multiples of range_step terms apart.
  int64_t range_terms;
  int64_t range_step;
  // ... and rows that lie evenly apart by runs of so many, on average.
  int64_t even_rows;
  // Under the same conditions bf16 lhs needs no range: it is in slots already, and round_range does
  // not know it.
  bool bf16_in_place;
  // Faster at taps of fewer than few_terms_below terms, and where less than skip_below_density of
  // lhs is not zero; null: this set.
  const MxuKernelSet* few_terms;
  int64_t few_terms_below;
  double skip_below_density;
  int64_t sparse_columns;  // 0: no multiply_sparse
  double sparse_below;     // part of lhs' slots that are not zero: at more, nobody asks it
  // Segments of a K block that pack_rhs may be asked for alone; 0: all of them only.
  int64_t rhs_piece;
  size_t (*lhs_bytes)(int64_t rows, int64_t segments);
  size_t (*rhs_bytes)(int64_t panels, int64_t segments);
  void (*pack_lhs)(const MxuBlockArgs&);
  bool (*pack_rhs)(const MxuBlockArgs&);  // true if all is known to be finite
  void (*multiply)(const MxuBlockArgs&);
  // Whether multiply computes a block with the kernel for few terms; null: there is none.
  bool (*is_short)(const MxuBlockArgs&);
  // `count` consecutive K blocks of the same rows and panels, if it pays to skip the zeros of lhs.
  // Returns the panels that are done, from the first on, whole ones of sparse_columns together.
  // Null when multiply knows no zeros.
  int64_t (*multiply_sparse)(const MxuBlockArgs* k_blocks, int64_t count);
  // Rounds `count` consecutive elements to bf16 and brings them into slots, with bits as in
  // lhs_bits unless that is null; null when multiply needs lhs in another form.
  void (*round_range)(const uint8_t* from, bool is_bf16, int64_t count, float* to, uint8_t* bits);
};

// True if `count` offsets lie `bytes` apart. Internal to each unit, like all its code.
static inline bool evenly_apart(const int64_t* offsets, int64_t count, int64_t bytes) {
  for (int64_t i = 1; i < count; ++i) {
    if (offsets[i] - offsets[i - 1] != bytes) {
      return false;
    }
  }
  return true;
}

// How many of the first offsets or pointers lie evenly apart; 1 or 2 at least.
template <class Place>
static inline int64_t even_run(const Place* places, int64_t count) {
  int64_t run = count < 2 ? count : 2;
  while (run < count && places[run] - places[run - 1] == places[1] - places[0]) {
    ++run;
  }
  return run;
}

#if defined(__x86_64__)
const MxuKernelSet* mxu_kernels_avx2();
const MxuKernelSet* mxu_kernels_avx512();
const MxuKernelSet* mxu_kernels_avx512_bf16();
const MxuKernelSet* mxu_kernels_amx();  // for a process that may use the tiles
#else
const MxuKernelSet* mxu_kernels_neon();
#endif

}  // namespace tpu::model
