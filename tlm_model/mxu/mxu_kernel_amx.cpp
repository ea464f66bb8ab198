// AMX kernels of the fast engine: 32x32 blocks (2x2 result tiles) that stay in tile registers over
// a whole K block. One TDPBF16PS is one segment of the number law: pairs (even, odd) of bf16, two
// chains from +0, their sum added to the running value. Operands are packed as tiles of 1 KiB: lhs
// [16 rows][32 k], rhs [16 pairs][16 columns][2].
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "mxu/mxu_bf16.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSide = 32;  // rows and columns of a block

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void amx_pack_lhs(const MxuBlockArgs& a) {
  const int64_t padded = (a.rows + kSide - 1) / kSide * kSide;
  const int64_t element = a.lhs_is_bf16 ? 2 : 4;
  auto* packed = static_cast<uint8_t*>(a.packed_lhs);
  for (int64_t row = 0; row < padded; ++row) {
    // Block of 32 rows: [segment][upper, lower tile][16 rows][64 bytes].
    uint8_t* to = packed + row / kSide * a.segment_count * 2 * kTileBytes + row % kSide * 64;
    for (int64_t s = 0; s < a.segment_count; ++s, to += 2 * kTileBytes) {
      const MxuSegment& segment = a.segments[s];
      const int64_t k = row < a.rows ? segment.k : 0;
      __m256i low = _mm256_setzero_si256();
      __m256i high = low;
      if (k > 0) {
        const uint8_t* from = a.lhs + a.row_lhs[row] + segment.lhs_offset;
        low = load_bf16(from, a.lhs_is_bf16, k);
        if (k > 16) {
          high = load_bf16(from + 16 * element, a.lhs_is_bf16, k - 16);
        }
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), low);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), high);
    }
  }
}

// One row pair of 16 columns: even and odd elements interleaved.
inline __m512i interleave(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

inline int64_t rhs_column(const MxuBlockArgs& a, const MxuPanel& panel, int64_t n) {
  return panel.rhs_columns != nullptr ? panel.rhs_columns[n] : n * a.n_rhs_stride;
}

inline int64_t out_column(const MxuBlockArgs& a, const MxuPanel& panel, int64_t n) {
  return panel.out_columns != nullptr ? panel.out_columns[n] : n * a.n_out_stride;
}

void pack_rhs_segment(const MxuBlockArgs& a, const MxuPanel& panel, const MxuSegment& segment,
                      uint8_t* to) {
  const int64_t element = a.rhs_is_bf16 ? 2 : 4;
  const uint8_t* base = a.rhs + panel.rhs_offset + segment.rhs_tap;
  const int64_t* k_rhs = a.k_rhs + segment.k_first;
  for (int64_t half = 0; half < 2; ++half, to += kTileBytes) {
    const int64_t first = half * 16;
    const int64_t count = panel.count - first < 16 ? panel.count - first : 16;
    if (count <= 0) {
      std::memset(to, 0, kTileBytes);
      continue;
    }
    if (panel.rhs_columns == nullptr && a.n_rhs_stride == element) {
      for (int64_t k = 0; k < kMxuSegment; k += 2) {
        const uint8_t* from = base + first * element;
        const __m256i zero = _mm256_setzero_si256();
        const __m256i even =
            k < segment.k ? load_bf16(from + k_rhs[k], a.rhs_is_bf16, count) : zero;
        const __m256i odd =
            k + 1 < segment.k ? load_bf16(from + k_rhs[k + 1], a.rhs_is_bf16, count) : zero;
        _mm512_storeu_si512(to + k * 32, interleave(even, odd));
      }
      continue;
    }
    std::memset(to, 0, kTileBytes);
    const bool run = evenly_apart(k_rhs, segment.k, element);
    for (int64_t n = 0; n < count; ++n) {
      const uint8_t* from = base + rhs_column(a, panel, first + n);
      alignas(64) uint16_t column[kMxuSegment] = {};
      if (run) {
        const __m256i low = load_bf16(from + k_rhs[0], a.rhs_is_bf16, segment.k);
        _mm256_store_si256(reinterpret_cast<__m256i*>(column), low);
        if (segment.k > 16) {
          const __m256i high =
              load_bf16(from + k_rhs[0] + 16 * element, a.rhs_is_bf16, segment.k - 16);
          _mm256_store_si256(reinterpret_cast<__m256i*>(column + 16), high);
        }
      } else {
        for (int64_t k = 0; k < segment.k; ++k) {
          column[k] = scalar_bf16(from + k_rhs[k], a.rhs_is_bf16);
        }
      }
      for (int64_t pair = 0; pair < 16; ++pair) {
        std::memcpy(to + pair * 64 + n * 4, column + pair * 2, 4);
      }
    }
  }
}

bool amx_pack_rhs(const MxuBlockArgs& a) {
  auto* to = static_cast<uint8_t*>(a.packed_rhs);
  for (int64_t p = 0; p < a.panel_count; ++p) {
    for (int64_t s = 0; s < a.segment_count; ++s, to += 2 * kTileBytes) {
      pack_rhs_segment(a, a.panels[p], a.segments[s], to);
    }
  }
  return false;  // nobody asks
}

// Running values of one 32x32 block in c (row pitch in floats), lower = more than 16 rows, right =
// more than 16 columns.
void block(const uint8_t* lhs, const uint8_t* rhs, const MxuSegment* segments,
           int64_t segment_count, float* c, int64_t pitch, bool zero_start, bool lower,
           bool right) {
  const auto stride = static_cast<int>(pitch * 4);
  // g++ 12 does not know that _tile_loadd reads memory: what was written must be there before.
  __asm__ volatile("" ::: "memory");
  if (zero_start) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, stride);
    if (right) {
      _tile_loadd(1, c + 16, stride);
    }
    if (lower) {
      _tile_loadd(2, c + 16 * pitch, stride);
    }
    if (lower && right) {
      _tile_loadd(3, c + 16 * pitch + 16, stride);
    }
  }
  for (int64_t s = 0; s < segment_count; ++s, lhs += 2 * kTileBytes, rhs += 2 * kTileBytes) {
    _tile_loadd(4, lhs, 64);
    _tile_loadd(6, rhs, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (right) {
      _tile_loadd(7, rhs + kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (lower) {
      _tile_loadd(5, lhs + kTileBytes, 64);
      _tile_dpbf16ps(2, 5, 6);
      if (right) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    if (segments[s].pad) {  // an empty segment: +0 to every running value
      _tile_zero(4);
      _tile_zero(6);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 6);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 6);
    }
  }
  _tile_stored(0, c, stride);
  if (right) {
    _tile_stored(1, c + 16, stride);
  }
  if (lower) {
    _tile_stored(2, c + 16 * pitch, stride);
  }
  if (lower && right) {
    _tile_stored(3, c + 16 * pitch + 16, stride);
  }
}

void canonicalise(float* row, int64_t count) {
  for (int64_t n = 0; n < count; n += 16) {
    const auto mask = static_cast<__mmask16>(count - n >= 16 ? 0xffffU : (1U << (count - n)) - 1U);
    const __m512 value = _mm512_maskz_loadu_ps(mask, row + n);
    const __mmask16 nan = _mm512_mask_cmp_ps_mask(mask, value, value, _CMP_UNORD_Q);
    if (nan != 0) {
      _mm512_mask_storeu_epi32(row + n, nan, _mm512_set1_epi32(0x7fc00000));
    }
  }
}

void edge_load(const MxuBlockArgs& a, const MxuPanel& panel, int64_t row, int64_t rows,
               float* edge) {
  for (int64_t i = 0; i < rows; ++i) {
    const uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
    for (int64_t n = 0; n < panel.count; ++n) {
      std::memcpy(edge + i * kSide + n, out + out_column(a, panel, n), sizeof(float));
    }
  }
}

void edge_store(const MxuBlockArgs& a, const MxuPanel& panel, int64_t row, int64_t rows,
                const float* edge) {
  for (int64_t i = 0; i < rows; ++i) {
    uint8_t* out = a.out + a.row_out[row + i] + panel.out_offset;
    if (panel.out_columns == nullptr && a.n_out_stride == 4) {
      std::memcpy(out, edge + i * kSide, static_cast<size_t>(panel.count) * sizeof(float));
      continue;
    }
    for (int64_t n = 0; n < panel.count; ++n) {
      std::memcpy(out + out_column(a, panel, n), edge + i * kSide + n, sizeof(float));
    }
  }
}

// Row pitch in floats when the 32 rows lie evenly apart, so that tiles can be loaded and stored in
// place; else 0.
int64_t even_pitch(const MxuBlockArgs& a, int64_t row) {
  const int64_t pitch = a.row_out[row + 1] - a.row_out[row];
  if (!evenly_apart(a.row_out + row, kSide, pitch)) {
    return 0;
  }
  return pitch > 0 && pitch % 4 == 0 && pitch < (int64_t{1} << 30) ? pitch / 4 : 0;
}

void amx_multiply(const MxuBlockArgs& a) {
  static constexpr TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) float edge[kSide * kSide];
  const auto* lhs = static_cast<const uint8_t*>(a.packed_lhs);
  const auto* rhs = static_cast<const uint8_t*>(a.packed_rhs);
  const int64_t step = a.segment_count * 2 * kTileBytes;
  for (int64_t p = 0; p < a.panel_count; ++p) {
    const MxuPanel& panel = a.panels[p];
    for (int64_t row = 0; row < a.rows; row += kSide) {
      const int64_t rows = a.rows - row < kSide ? a.rows - row : kSide;
      const bool whole = rows == kSide && panel.count == kSide && panel.out_columns == nullptr &&
                         a.n_out_stride == 4;
      const int64_t direct = whole ? even_pitch(a, row) : 0;
      float* c = edge;
      int64_t pitch = kSide;
      if (direct != 0) {
        c = reinterpret_cast<float*>(a.out + a.row_out[row] + panel.out_offset);
        pitch = direct;
      } else if (!a.zero_start) {
        std::memset(edge, 0, sizeof(edge));
        edge_load(a, panel, row, rows, edge);
      }
      block(lhs + row / kSide * step, rhs + p * step, a.segments, a.segment_count, c, pitch,
            a.zero_start, rows > 16, panel.count > 16);
      if (a.last) {
        for (int64_t i = 0; i < rows; ++i) {
          canonicalise(c + i * pitch, panel.count);
        }
      }
      if (direct == 0) {
        edge_store(a, panel, row, rows, edge);
      }
    }
  }
  _tile_release();
}

size_t amx_lhs_bytes(int64_t rows, int64_t segments) {
  return static_cast<size_t>((rows + kSide - 1) / kSide * segments * 2 * kTileBytes);
}

size_t amx_rhs_bytes(int64_t panels, int64_t segments) {
  return static_cast<size_t>(panels * segments * 2 * kTileBytes);
}

// Linux gives the tile state to a process that asks for it.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const MxuKernelSet* mxu_kernels_amx() {
  static const bool permitted = tiles_permitted();
  static constexpr MxuKernelSet set = {.nr = kSide,
                                       .block_segments = 32,
                                       .block_rows = 512,
                                       .outer_rows = 512,
                                       .block_panels = 32,
                                       .slot_terms = 1,
                                       .range_terms = 1,
                                       .range_step = 1,
                                       .few_terms = nullptr,
                                       .skip_below_density = 0.0,
                                       .sparse_columns = 0,
                                       .lhs_bytes = amx_lhs_bytes,
                                       .rhs_bytes = amx_rhs_bytes,
                                       .pack_lhs = amx_pack_lhs,
                                       .pack_rhs = amx_pack_rhs,
                                       .multiply = amx_multiply,
                                       .multiply_sparse = nullptr,
                                       .round_range = nullptr};
  return permitted ? &set : nullptr;
}

}  // namespace tpu::model
