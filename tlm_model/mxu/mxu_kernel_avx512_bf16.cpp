// AVX512_BF16 kernels of the fast engine: blocks of 3 rows by 64 columns. VDPBF16PS adds two
// products to a sum one after the other, each by a fused multiply-add that rounds to nearest even
// and flushes subnormals: first that of the upper halves of its pairs, then that of the lower. A
// pair here holds two neighbours of one chain, the earlier one in the upper half:
// (k + 2, k) for the even chain, (k + 3, k + 1) for the odd one. So one instruction does what two
// FMAs do, on operands of half the size.
#include <immintrin.h>

#include <cstring>

#include "mxu/mxu_bf16.hpp"
#include "mxu/mxu_fast_kernels.hpp"
#include "mxu/mxu_floats512.hpp"
#include "mxu/mxu_fma_pack.hpp"
#include "mxu/mxu_panel.hpp"
#include "mxu/mxu_short.hpp"
#include "mxu/mxu_sparse.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kLanes = Floats512::kWidth;
constexpr int64_t kMostVectors = Floats512::kVectors;
constexpr int64_t kGroup = 4;                      // terms that make a pair of either chain
constexpr int64_t kGroups = kMxuSegment / kGroup;  // of a segment
constexpr int64_t kSlots = kMxuSegment / 2;        // pairs of a segment
constexpr int64_t kPitchSlots = 16;                // beside the rows of a block in the cache

// Words i and 16 + i side by side: pairs of `upper` and `lower` from lower | upper << 256.
inline __m512i pairs_of(__m512i lower_upper) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), lower_upper);
}

// Consecutive terms of lhs in pairs: even, odd, even, ...
inline __m512i paired_terms(__m512i terms) {
  alignas(64) static constexpr uint16_t kOrder[32] = {2,  0,  3,  1,  6,  4,  7,  5,  10, 8,  11,
                                                      9,  14, 12, 15, 13, 18, 16, 19, 17, 22, 20,
                                                      23, 21, 26, 24, 27, 25, 30, 28, 31, 29};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), terms);
}

inline __m512i side_by_side(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// 16 consecutive elements of each as bf16.
template <bool kBf16>
inline __attribute__((always_inline)) __m512i load_two(const uint8_t* low, const uint8_t* high) {
  if constexpr (kBf16) {
    return side_by_side(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)));
  } else {
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low)));
  }
}

// The first `count` of up to 16; zeros behind them.
template <bool kBf16>
inline __m512i load_two(const uint8_t* low, int64_t low_count, const uint8_t* high,
                        int64_t high_count) {
  const __m256i zero = _mm256_setzero_si256();
  return side_by_side(low_count > 0 ? load_bf16(low, kBf16, low_count) : zero,
                      high_count > 0 ? load_bf16(high, kBf16, high_count) : zero);
}

// `terms` (1 to 32) consecutive elements as the pairs of a segment.
template <bool kBf16>
inline __attribute__((always_inline)) __m512i segment_of(const uint8_t* from, int64_t terms) {
  constexpr int64_t kHalf = 16 * (kBf16 ? 2 : 4);
  return paired_terms(terms == kMxuSegment
                          ? load_two<kBf16>(from, from + kHalf)
                          : load_two<kBf16>(from, terms, from + kHalf, terms - 16));
}

// ---- lhs

// A bit for each pair of a segment that has a term which is not zero.
inline void mark_pairs(__m512i pairs, uint8_t* bits) {
  const __mmask16 mask = _mm512_test_epi32_mask(pairs, _mm512_set1_epi32(0x7fff7fff));
  std::memcpy(bits, &mask, sizeof mask);
}

template <bool kBf16>
void pair_range(const uint8_t* from, int64_t count, float* to, uint8_t* bits) {
  constexpr int64_t kAheadBytes = 4096;
  constexpr int64_t kBytes = kBf16 ? 2 : 4;
  for (int64_t i = 0; i < count; i += kMxuSegment, from += kMxuSegment * kBytes, to += kSlots) {
    const int64_t terms = count - i < kMxuSegment ? count - i : kMxuSegment;
    for (int64_t byte = 0; byte < kMxuSegment * kBytes; byte += 64) {
      fetch(from + kAheadBytes + byte);
    }
    const __m512i pairs = segment_of<kBf16>(from, terms);
    if (bits != nullptr) {
      mark_pairs(pairs, bits + i / kMxuSegment * (kSlots / 8));
    }
    if (terms == kMxuSegment) {
      _mm512_storeu_si512(to, pairs);
    } else {
      alignas(64) uint32_t part[kSlots];
      _mm512_storeu_si512(part, pairs);
      std::memcpy(to, part, static_cast<size_t>(terms / 2) * sizeof(uint32_t));
    }
  }
}

void dot_round_range(const uint8_t* from, bool is_bf16, int64_t count, float* to, uint8_t* bits) {
  (is_bf16 ? pair_range<true> : pair_range<false>)(from, count, to, bits);
}

inline int64_t dot_lhs_pitch(int64_t segments) { return segments * kSlots + kPitchSlots; }

template <bool kBf16>
void pair_rows(const MxuBlockArgs& a) {
  constexpr int64_t kBytes = kBf16 ? 2 : 4;
  auto* packed = static_cast<float*>(a.packed_lhs);
  for (int64_t s = 0; s < a.segment_count; ++s) {
    a.segment_at[s] = s * kSlots;
  }
  for (int64_t row = 0; row < a.rows; ++row) {
    const uint8_t* from = a.lhs + a.row_lhs[row];
    float* to = packed + row * dot_lhs_pitch(a.segment_count);
    a.row_at[row] = to;
    for (int64_t s = 0; s < a.segment_count; ++s, to += kSlots) {
      const uint8_t* segment = from + a.segments[s].lhs_offset;
      for (int64_t byte = 0; byte < kMxuSegment * kBytes; byte += 64) {
        fetch(segment + a.k * kBytes + byte);  // the next K block's, as a rule
      }
      const __m512i pairs = segment_of<kBf16>(segment, a.segments[s].k);
      _mm512_storeu_si512(to, pairs);
      if (a.lhs_bits != nullptr) {
        mark_pairs(pairs, a.lhs_bits + (to - packed) / 8);
      }
    }
  }
}

void dot_pack_lhs(const MxuBlockArgs& a) {
  (a.lhs_is_bf16 ? pair_rows<true> : pair_rows<false>)(a);
}

// ---- rhs: panels follow each other, each [segment][group of four terms][even, odd][column]

// One segment of a panel.
template <bool kBf16>
struct PairedSegment {
  static constexpr int64_t kBytes = kBf16 ? 2 : 4;
  const MxuBlockArgs& a;
  const MxuPanel& panel;
  int64_t s;
  int64_t width;
  float* to;
  __mmask32* infinite;  // gets bits where an infinity or a NaN is

  void store(float* at, __m512i pairs) const {
    const __m512i exponent = _mm512_set1_epi32(0x7f807f80);
    *infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponent), exponent);
    _mm512_storeu_si512(at, pairs);
  }

  const MxuSegment& segment() const { return a.segments[s]; }
  const uint8_t* base() const { return a.rhs + panel.rhs_offset + segment().rhs_tap; }
  int64_t column(int64_t n) const {
    return panel.rhs_columns != nullptr ? panel.rhs_columns[n] : n * a.n_rhs_stride;
  }

  void pack() const {
    const int64_t* k_rhs = a.k_rhs + segment().k_first;
    if (panel.rhs_columns == nullptr && a.n_rhs_stride == kBytes) {
      pack_rows(base(), k_rhs);
    } else {
      pack_columns(base(), k_rhs);
    }
  }

  // Columns are consecutive.
  void pack_rows(const uint8_t* from, const int64_t* k_rhs) const {
    const bool whole = panel.count == width && segment().k == kMxuSegment;
    for (int64_t group = 0; group < kGroups; ++group) {
      const int64_t first = group * kGroup;
      fetch_group(first);
      for (int64_t chain = 0; chain < 2; ++chain) {
        const int64_t early = first + chain;
        const int64_t late = early + 2;
        float* pairs = to + (2 * group + chain) * width;
        for (int64_t n = 0; n < width; n += kLanes) {
          const int64_t at = n * kBytes;
          const int64_t columns = panel.count - n < kLanes ? panel.count - n : kLanes;
          const __m512i both =
              whole ? load_two<kBf16>(from + k_rhs[late] + at, from + k_rhs[early] + at)
                    : load_two<kBf16>(late < segment().k ? from + k_rhs[late] + at : nullptr,
                                      late < segment().k ? columns : 0,
                                      early < segment().k ? from + k_rhs[early] + at : nullptr,
                                      early < segment().k ? columns : 0);
          store(pairs + n, pairs_of(both));
        }
      }
    }
  }

  // The rows of the next segment that are in the place of these.
  void fetch_group(int64_t first) const {
    if (s + 1 == a.segments_left) {
      return;
    }
    const MxuSegment& next = a.segments[s + 1];
    const uint8_t* from = a.rhs + panel.rhs_offset + next.rhs_tap;
    for (int64_t k = first; k < first + kGroup && k < next.k; ++k) {
      for (int64_t byte = 0; byte < panel.count * kBytes; byte += 64) {
        fetch(from + a.k_rhs[next.k_first + k] + byte);
      }
    }
  }

  // Columns lie apart: pairs of each column, then transposed.
  void pack_columns(const uint8_t* from, const int64_t* k_rhs) const {
    const bool run = evenly_apart(k_rhs, segment().k, kBytes);
    const int64_t next = width * a.n_rhs_stride;  // the panel that follows, as a rule
    for (int64_t n = 0; n < width; n += kVec) {
      alignas(64) float columns[kVec][kSlots];
      for (int64_t i = 0; i < kVec; ++i) {
        __m512i pairs = _mm512_setzero_si512();
        if (n + i < panel.count) {
          const uint8_t* at = from + column(n + i);
          pairs = run ? segment_of<kBf16>(at + k_rhs[0], segment().k) : gathered(at, k_rhs);
          fetch(at + k_rhs[0] + next);
          fetch(at + k_rhs[0] + next + 64);
        }
        store(columns[i], pairs);
      }
      for (int64_t slot = 0; slot < kSlots; slot += kVec) {
        __m256 r[kVec];
        for (int64_t i = 0; i < kVec; ++i) {
          r[i] = _mm256_load_ps(columns[i] + slot);
        }
        transpose8(r);
        for (int64_t i = 0; i < kVec; ++i) {
          _mm256_storeu_ps(to + (slot + i) * width + n, r[i]);
        }
      }
    }
  }

  __m512i gathered(const uint8_t* column, const int64_t* k_rhs) const {
    alignas(64) uint16_t terms[kMxuSegment] = {};
    for (int64_t k = 0; k < segment().k; ++k) {
      terms[k] = scalar_bf16(column + k_rhs[k], kBf16);
    }
    return paired_terms(_mm512_load_si512(terms));
  }
};

template <bool kBf16>
bool pair_panels(const MxuBlockArgs& a) {
  __mmask32 infinite = 0;
  auto* to = static_cast<float*>(a.packed_rhs);
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const int64_t width = panel_width(a.panels[p], kLanes);
    for (int64_t s = 0; s < a.segment_count; ++s, to += kSlots * width) {
      PairedSegment<kBf16>{a, a.panels[p], s, width, to, &infinite}.pack();
    }
  }
  return infinite == 0;
}

bool dot_pack_rhs(const MxuBlockArgs& a) {
  return (a.rhs_is_bf16 ? pair_panels<true> : pair_panels<false>)(a);
}

// ---- blocks

inline __m512 dot(__m512 sum, __m512i lhs, __m512i rhs) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(lhs), reinterpret_cast<__m512bh>(rhs));
}

// A pair of terms of a chain over all accumulators.
template <int MR, int NV>
inline __attribute__((always_inline)) void chain_step(const float* const (&a)[MR], int64_t slot,
                                                      const float* b, __m512 (&sum)[MR][NV]) {
  __m512i w[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    w[v] = _mm512_load_si512(b + v * kLanes);
  }
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i) {
    int32_t pair = 0;
    std::memcpy(&pair, a[i] + slot, sizeof pair);
    const __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      sum[i][v] = dot(sum[i][v], x, w[v]);
    }
  }
}

// running = running + (even + odd), both chains in registers.
template <int MR, int NV>
inline __attribute__((always_inline)) void add_dot_segment(const BlockArgs& args, int64_t s,
                                                           const float* b) {
  __m512 even[MR][NV];
  __m512 odd[MR][NV];
  const float* a[MR];
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i) {
    a[i] = args.rows[i] + args.segment_at[s];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      even[i][v] = _mm512_setzero_ps();
      odd[i][v] = _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 8
  for (int64_t group = 0; group < kGroups; ++group, b += 2 * NV * kLanes) {
    chain_step<MR, NV>(a, 2 * group, b, even);
    chain_step<MR, NV>(a, 2 * group + 1, b + NV * kLanes, odd);
  }
  const bool start = args.zero_start && s == 0;
  const bool pad = args.segments[s].pad;
  const bool last = args.last && s + 1 == args.segment_count;
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i) {
    float* c = args.out[i];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v, c += kLanes) {
      const __m512 sum = _mm512_add_ps(even[i][v], odd[i][v]);
      __m512 running = _mm512_add_ps(start ? _mm512_setzero_ps() : _mm512_loadu_ps(c), sum);
      running = pad ? _mm512_add_ps(running, _mm512_setzero_ps()) : running;
      _mm512_storeu_ps(c, last ? Floats512::canonical(running) : running);
    }
  }
}

template <int MR, int NV>
void dot_block(const BlockArgs& args) {
  const float* b = args.rhs;
  for (int64_t s = 0; s < args.segment_count; ++s, b += kSlots * NV * kLanes) {
    add_dot_segment<MR, NV>(args, s, b);
  }
}

class DotBlocks {
 public:
  static constexpr int64_t kWidth = kLanes;
  static constexpr int64_t kPanel = kLanes * kMostVectors;
  static constexpr int64_t kMostRows = 3;  // 2 x 3 x 4 accumulators of 32 registers

  explicit DotBlocks(const MxuBlockArgs& /*a*/) {}
  static int64_t height() { return kMostRows; }
  static int64_t panel_slots(const MxuBlockArgs& a, const MxuPanel& panel) {
    return a.segment_count * kSlots * panel_width(panel, kLanes);
  }
  static void run(int64_t rows, int64_t vectors, const BlockArgs& args) {
    using Block = void (*)(const BlockArgs&);
    static constexpr Block table[kMostRows][kMostVectors] = {
        {dot_block<1, 1>, dot_block<1, 2>, dot_block<1, 3>, dot_block<1, 4>},
        {dot_block<2, 1>, dot_block<2, 2>, dot_block<2, 3>, dot_block<2, 4>},
        {dot_block<3, 1>, dot_block<3, 2>, dot_block<3, 3>, dot_block<3, 4>}};
    table[rows - 1][vectors - 1](args);
  }
};

// A single segment that ends a command: mxu_short.hpp.
template <int MR, int NV>
struct ShortDots {
  static constexpr int64_t kRows = MR;
  static constexpr int64_t kColumns = NV * kLanes;

  template <bool kStream>
  static inline __attribute__((always_inline)) void run(const ShortArgs& args, int64_t row) {
    __m512 sum[MR][NV];
    __m512 odd[MR][NV];
    const float* a[MR];
    float* out[MR];
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      a[i] = args.lhs[row + i] + args.segment_at[0];
      out[i] = reinterpret_cast<float*>(args.out + args.row_out[row + i]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        sum[i][v] = _mm512_setzero_ps();
        odd[i][v] = _mm512_setzero_ps();
      }
    }
    const int64_t groups = (args.segments[0].k + kGroup - 1) / kGroup;
    const float* b = args.rhs;
    for (int64_t group = 0; group < groups; ++group, b += 2 * kColumns) {
      chain_step<MR, NV>(a, 2 * group, b, sum);
      chain_step<MR, NV>(a, 2 * group + 1, b + kColumns, odd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        sum[i][v] = _mm512_add_ps(sum[i][v], odd[i][v]);
        if (!args.zero_start) {
          sum[i][v] = _mm512_add_ps(_mm512_loadu_ps(out[i] + v * kLanes), sum[i][v]);
        }
        sum[i][v] = Floats512::canonical(_mm512_add_ps(sum[i][v], _mm512_setzero_ps()));
        if constexpr (kStream) {
          _mm512_stream_ps(out[i] + v * kLanes, sum[i][v]);
        } else {
          _mm512_storeu_ps(out[i] + v * kLanes, sum[i][v]);
        }
      }
    }
  }
};

// Pairs of lhs that are not zero: mxu_sparse.hpp.
struct Dots : Floats512 {
  static constexpr int64_t kSlotTerms = 2;
  static constexpr double kSparseBelow = 0.72;  // of pairs; measured: docs/matrix_engine.md
  static F broadcast(const float* at) {
    int32_t pair = 0;
    std::memcpy(&pair, at, sizeof pair);
    return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
  }
  static F fma(F a, F b, F c) { return dot(c, _mm512_castps_si512(a), _mm512_castps_si512(b)); }
};

int64_t dot_multiply_sparse(const MxuBlockArgs* blocks, int64_t count) {
  return count == 1 && ends_in_one_segment(blocks[0]) ? 0 : multiply_nonzero<Dots>(blocks, count);
}

void dot_multiply(const MxuBlockArgs& a) {
  static constexpr const ShortFn* table[kMostVectors] = {
      kShortRows<ShortDots<3, 1>, ShortDots<1, 1>>, kShortRows<ShortDots<3, 2>, ShortDots<1, 2>>,
      kShortRows<ShortDots<3, 3>, ShortDots<1, 3>>, kShortRows<ShortDots<3, 4>, ShortDots<1, 4>>};
  if (ends_in_one_segment(a)) {
    multiply_chunks<DotBlocks>(a, [](int64_t vectors) { return table[vectors - 1]; });
  } else {
    multiply_panels<DotBlocks>(a);
  }
}

size_t dot_lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>(rows * dot_lhs_pitch(segments)) * sizeof(float);
}

size_t dot_rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * kSlots * DotBlocks::kPanel) * sizeof(float);
}

constexpr int64_t kFewTermsBelow = 16;  // of half a segment

}  // namespace

const MxuKernelSet* mxu_kernels_avx512_bf16() {
  static const MxuKernelSet set = {.nr = DotBlocks::kPanel,
                                   .block_segments = 8,
                                   .few_rows = 64,
                                   .few_rows_segments = 3,
                                   .block_rows = 96,
                                   .outer_rows = 384,
                                   .block_panels = 8,
                                   .placed_panels = 2,
                                   .placed_rhs_room = 4 << 20,
                                   .slot_terms = 2,
                                   .range_terms = kMxuSegment,
                                   .range_step = kGroup,
                                   .even_rows = 1,
                                   .bf16_in_place = false,
                                   .few_terms = mxu_kernels_avx512(),
                                   .few_terms_below = kFewTermsBelow,
                                   .skip_below_density = 0.0,
                                   .sparse_columns = SparseSegment<Dots>::kColumns,
                                   .sparse_below = Dots::kSparseBelow,
                                   .rhs_piece = 0,
                                   .lhs_bytes = dot_lhs_bytes,
                                   .rhs_bytes = dot_rhs_bytes,
                                   .pack_lhs = dot_pack_lhs,
                                   .pack_rhs = dot_pack_rhs,
                                   .multiply = dot_multiply,
                                   .is_short = ends_in_one_segment,
                                   .multiply_sparse = dot_multiply_sparse,
                                   .round_range = dot_round_range};
  return &set;
}

}  // namespace tpu::model
