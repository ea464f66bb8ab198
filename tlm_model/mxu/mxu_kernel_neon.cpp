// NEON kernels of the fast engine: blocks of 4 rows by 16 columns. Rows of lhs are read as they lie
// once they are rounded; rhs is packed by segments of 32 terms. The processor judges
// tininess before rounding (arith/host_f32.hpp): a block in which something underflowed is computed
// again, with products that are looked at.
#include <arm_neon.h>

#include <cstring>

#include "arith/host_f32.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kLanes = 4;
constexpr int64_t kRows = 4;
constexpr int64_t kVectors = 4;
constexpr int64_t kColumns = kVectors * kLanes;
constexpr int64_t kSegmentRhs = kMxuSegment * kColumns;  // floats of a segment: [term][column]

int64_t groups_of(int64_t rows) { return (rows + kRows - 1) / kRows; }

// Of a packed row, in floats: 16 extra keep the rows of a block out of the same cache sets.
int64_t lhs_pitch(int64_t segments) { return segments * kMxuSegment + 16; }

size_t lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>(rows * lhs_pitch(segments)) * sizeof(float);
}

size_t rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * kSegmentRhs) * sizeof(float);
}

// Four f32 rounded to bf16: subnormals to zero of their sign, NaNs to the canonical one.
uint32x4_t rounded(uint32x4_t bits) {
  const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(0x7fffffffU));
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  const uint32x4_t number = vandq_u32(sum, vdupq_n_u32(0xffff0000U));
  const uint32x4_t small = vcltq_u32(magnitude, vdupq_n_u32(0x00800000U));
  const uint32x4_t nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7f800000U));
  const uint32x4_t flushed = vbslq_u32(small, vandq_u32(bits, vdupq_n_u32(0x80000000U)), number);
  return vbslq_u32(nan, vdupq_n_u32(0x7fc00000U), flushed);
}

// Four consecutive elements as floats that bf16 can hold. Subnormal bf16 stay: the processor takes
// them for zeros.
float32x4_t load_four(const uint8_t* from, bool is_bf16) {
  if (is_bf16) {
    uint16x4_t half;
    std::memcpy(&half, from, sizeof half);
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
  uint32x4_t word;
  std::memcpy(&word, from, sizeof word);
  return vreinterpretq_f32_u32(rounded(word));
}

float load_one(const uint8_t* from, bool is_bf16) {
  uint8_t four[16] = {};
  std::memcpy(four, from, is_bf16 ? 2 : 4);
  return vgetq_lane_f32(load_four(four, is_bf16), 0);
}

void copy_rounded(const uint8_t* from, bool is_bf16, int64_t count, float* to) {
  const int64_t bytes = is_bf16 ? 2 : 4;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    vst1q_f32(to + i, load_four(from + i * bytes, is_bf16));
  }
  for (; i < count; ++i) {
    to[i] = load_one(from + i * bytes, is_bf16);
  }
}

// Without bits: nobody skips zeros.
void round_range(const uint8_t* from, bool is_bf16, int64_t count, float* to, uint8_t*) {
  copy_rounded(from, is_bf16, count, to);
}

void pack_lhs(const MxuBlockArgs& a) {
  int64_t at = 0;
  for (int64_t s = 0; s < a.segment_count; ++s) {
    a.segment_at[s] = at;
    at += a.segments[s].k;
  }
  auto* to = static_cast<float*>(a.packed_lhs);
  for (int64_t row = 0; row < a.rows; ++row, to += lhs_pitch(a.segment_count)) {
    a.row_at[row] = to;
    for (int64_t s = 0; s < a.segment_count; ++s) {
      const MxuSegment& segment = a.segments[s];
      copy_rounded(a.lhs + a.row_lhs[row] + segment.lhs_offset, a.lhs_is_bf16, segment.k,
                   to + a.segment_at[s]);
    }
  }
}

// One segment of a panel. Columns that follow each other are read as vectors.
void pack_rhs_segment(const MxuBlockArgs& a, const MxuPanel& panel, const MxuSegment& segment,
                      float* to) {
  const int64_t bytes = a.rhs_is_bf16 ? 2 : 4;
  const bool side_by_side = panel.rhs_columns == nullptr && a.n_rhs_stride == bytes;
  const uint8_t* const base = a.rhs + panel.rhs_offset + segment.rhs_tap;
  for (int64_t k = 0; k < segment.k; ++k, to += kColumns) {
    const uint8_t* const row = base + a.k_rhs[segment.k_first + k];
    int64_t n = 0;
    for (; side_by_side && n + kLanes <= panel.count; n += kLanes) {
      vst1q_f32(to + n, load_four(row + n * bytes, a.rhs_is_bf16));
    }
    for (; n < panel.count; ++n) {
      const int64_t column =
          panel.rhs_columns != nullptr ? panel.rhs_columns[n] : n * a.n_rhs_stride;
      to[n] = load_one(row + column, a.rhs_is_bf16);
    }
  }
}

bool pack_rhs(const MxuBlockArgs& a) {
  auto* to = static_cast<float*>(a.packed_rhs);
  std::memset(to, 0, rhs_bytes(a.panel_count, a.segment_count));
  for (int64_t p = 0; p < a.panel_count; ++p) {
    for (int64_t s = 0; s < a.segment_count; ++s, to += kSegmentRhs) {
      pack_rhs_segment(a, a.panels[p], a.segments[s], to);
    }
  }
  return false;  // nobody skips zeros
}

// Running values of a block, and what is added to them.
struct Block {
  float32x4_t values[kRows][kVectors];
};

inline float32x4_t add_product(float32x4_t sum, float32x4_t w, float x) {
  return vfmaq_n_f32(sum, w, x);
}

// The same where zeros of products that are not zero may have been flushed too early.
float32x4_t add_product_exactly(float32x4_t sum, float32x4_t w, float x) {
  const float32x4_t result = add_product(sum, w, x);
  if (x == 0.0F || vmaxvq_u32(vceqzq_f32(result)) == 0) {
    return result;
  }
  float lanes[3][kLanes];
  vst1q_f32(lanes[0], result);
  vst1q_f32(lanes[1], w);
  vst1q_f32(lanes[2], sum);
  for (int64_t i = 0; i < kLanes; ++i) {
    lanes[0][i] = spec::host_fma(lanes[1][i], x, lanes[2][i]);
  }
  return vld1q_f32(lanes[0]);
}

inline void clear(Block& block) {
  for (auto& row : block.values) {
    for (float32x4_t& value : row) {
      value = vdupq_n_f32(0.0F);
    }
  }
}

// One term: `x` has that of each row in lane kLane.
template <bool kExact, int kLane>
inline __attribute__((always_inline)) void add_term(const float32x4_t (&x)[kRows], const float* rhs,
                                                    Block& sums) {
  float32x4_t w[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    w[v] = vld1q_f32(rhs + v * kLanes);
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      float32x4_t& sum = sums.values[i][v];
      sum = kExact ? add_product_exactly(sum, w[v], vgetq_lane_f32(x[i], kLane))
                   : vfmaq_laneq_f32(sum, w[v], x[i], kLane);
    }
  }
}

// Every second of the `terms` of a segment, from kFirst on. `rows`: of lhs, at the segment.
template <bool kExact, int kFirst>
inline __attribute__((always_inline)) void chain(const float* const (&rows)[kRows], int64_t terms,
                                                 const float* rhs, Block& sums) {
  clear(sums);
  float32x4_t x[kRows];
  int64_t k = 0;
  for (; k + kLanes <= terms; k += kLanes) {
    for (int64_t i = 0; i < kRows; ++i) {
      x[i] = vld1q_f32(rows[i] + k);
    }
    add_term<kExact, kFirst>(x, rhs + (k + kFirst) * kColumns, sums);
    add_term<kExact, kFirst + 2>(x, rhs + (k + kFirst + 2) * kColumns, sums);
  }
  for (k += kFirst; k < terms; k += 2) {
    for (int64_t i = 0; i < kRows; ++i) {
      x[i] = vdupq_n_f32(rows[i][k]);
    }
    add_term<kExact, 0>(x, rhs + k * kColumns, sums);
  }
  if (k < kMxuSegment) {  // the terms that are left out are +0 x +0, which turn a -0 into +0
    for (auto& row : sums.values) {
      for (float32x4_t& sum : row) {
        sum = vaddq_f32(sum, vdupq_n_f32(0.0F));
      }
    }
  }
}

// All segments of the K block on top of `running`. Not inlined: underflows of it are asked for.
template <bool kExact>
__attribute__((noinline)) void add_segments(const MxuBlockArgs& a, const float* const* lhs,
                                            const float* rhs, Block& running) {
  for (int64_t s = 0; s < a.segment_count; ++s, rhs += kSegmentRhs) {
    const float* rows[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      rows[i] = lhs[i] + a.segment_at[s];
    }
    Block even;
    Block odd;
    chain<kExact, 0>(rows, a.segments[s].k, rhs, even);
    chain<kExact, 1>(rows, a.segments[s].k, rhs, odd);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < kVectors; ++v) {
        float32x4_t& value = running.values[i][v];
        value = vaddq_f32(value, vaddq_f32(even.values[i][v], odd.values[i][v]));
        value = a.segments[s].pad ? vaddq_f32(value, vdupq_n_f32(0.0F)) : value;
      }
    }
  }
}

// Results of at most kRows rows of a panel, in memory.
struct Place {
  uint8_t* rows[kRows];
  int64_t row_count;
  const MxuPanel& panel;
  int64_t stride;

  bool in_order() const { return panel.out_columns == nullptr && stride == sizeof(float); }
  uint8_t* at(int64_t i, int64_t n) const {
    return rows[i] + (panel.out_columns != nullptr ? panel.out_columns[n] : n * stride);
  }

  void load(Block& block) const {
    float values[kRows][kColumns] = {};
    for (int64_t i = 0; i < row_count; ++i) {
      if (in_order()) {
        std::memcpy(values[i], rows[i], static_cast<size_t>(panel.count) * sizeof(float));
        continue;
      }
      for (int64_t n = 0; n < panel.count; ++n) {
        std::memcpy(&values[i][n], at(i, n), sizeof(float));
      }
    }
    std::memcpy(&block, values, sizeof block);
  }
  void store(const Block& block) const {
    float values[kRows][kColumns];
    std::memcpy(values, &block, sizeof block);
    for (int64_t i = 0; i < row_count; ++i) {
      if (in_order()) {
        std::memcpy(rows[i], values[i], static_cast<size_t>(panel.count) * sizeof(float));
        continue;
      }
      for (int64_t n = 0; n < panel.count; ++n) {
        std::memcpy(at(i, n), &values[i][n], sizeof(float));
      }
    }
  }
};

void make_nans_canonical(Block& block) {
  for (auto& row : block.values) {
    for (float32x4_t& value : row) {
      value = vbslq_f32(vceqq_f32(value, value), value,
                        vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000U)));
    }
  }
}

void multiply(const MxuBlockArgs& a) {
  const auto* const packed_rhs = static_cast<const float*>(a.packed_rhs);
  for (int64_t p = a.first_panel; p < a.panel_count; ++p) {
    const float* const rhs = packed_rhs + p * a.segment_count * kSegmentRhs;
    for (int64_t group = 0; group < groups_of(a.rows); ++group) {
      const int64_t first = group * kRows;
      const int64_t left = a.rows - first;
      Place place{.rows = {},
                  .row_count = left < kRows ? left : kRows,
                  .panel = a.panels[p],
                  .stride = a.n_out_stride};
      const float* lhs[kRows];
      for (int64_t i = 0; i < kRows; ++i) {
        lhs[i] = a.row_at[first + (i < place.row_count ? i : 0)];
      }
      for (int64_t i = 0; i < place.row_count; ++i) {
        place.rows[i] = a.out + a.row_out[first + i] + a.panels[p].out_offset;
      }
      Block before = {};
      if (!a.zero_start) {
        place.load(before);
      }
      Block running = before;
      spec::clear_host_underflow();
      add_segments<false>(a, lhs, rhs, running);
      if (spec::host_underflowed()) {
        running = before;
        add_segments<true>(a, lhs, rhs, running);
      }
      if (a.last) {
        make_nans_canonical(running);
      }
      place.store(running);
    }
  }
}

}  // namespace

const MxuKernelSet* mxu_kernels_neon() {
  static constexpr MxuKernelSet set = {.nr = kColumns,
                                       .block_segments = 8,
                                       .few_rows = 0,
                                       .few_rows_segments = 0,
                                       .block_rows = 48,
                                       .outer_rows = 192,
                                       .block_panels = 32,
                                       .placed_panels = 8,
                                       .placed_rhs_room = 4 << 20,
                                       .slot_terms = 1,
                                       .range_terms = 1,
                                       .range_step = 1,
                                       .even_rows = 1,
                                       .bf16_in_place = false,
                                       .few_terms = nullptr,
                                       .few_terms_below = 0,
                                       .skip_below_density = 0.0,
                                       .sparse_columns = 0,
                                       .sparse_below = 0.0,
                                       .rhs_piece = 0,
                                       .lhs_bytes = lhs_bytes,
                                       .rhs_bytes = rhs_bytes,
                                       .pack_lhs = pack_lhs,
                                       .pack_rhs = pack_rhs,
                                       .multiply = multiply,
                                       .is_short = nullptr,
                                       .multiply_sparse = nullptr,
                                       .round_range = round_range};
  return &set;
}

}  // namespace tpu::model
