// Tiles of the AMX kernels: configuration of the registers, rows of lhs cut into tiles, the loop
// over K. Registers 0 to 3 hold 2 x 2 tiles of results (upper left, upper right, lower left, lower
// right), 4 and 5 those of lhs, 6 and 7 those of rhs. One TDPBF16PS is one segment of the number
// semantics: pairs (even, odd) of bf16, two chains from +0, their sum added to the running value.
// Included by one unit; everything is internal to it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kRowBytes = 64;  // of a tile: 32 terms of lhs, 16 results, 16 pairs of rhs
constexpr int64_t kTileBytes = kTileRows * kRowBytes;
constexpr int64_t kSide = 2 * kTileRows;           // rows of a pair of tiles, columns of a panel
constexpr int64_t kSegmentBytes = 2 * kTileBytes;  // of packed rhs: columns 0 to 15, 16 to 31

// g++ 12 does not know what tile instructions read (of a configuration it knows 8 bytes): all that
// was written, at `at` too, must be in memory before.
inline __attribute__((always_inline)) void written_is_in_memory(const void* at) {
  __asm__ volatile("" ::"r"(at) : "memory");
}

// LDTILECFG's operand. It clears all tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile registers of a thread while one of these lives.
class TileRegisters {
 public:
  TileRegisters() = default;
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  // Rows of the upper and the lower tiles. An instruction takes as long as lhs has rows.
  void configure(int64_t upper, int64_t lower) {
    if (config_.rows[0] == upper && config_.rows[2] == lower && loaded_) {
      return;
    }
    config_.rows[0] = config_.rows[1] = config_.rows[4] = static_cast<uint8_t>(upper);
    config_.rows[2] = config_.rows[3] = config_.rows[5] = static_cast<uint8_t>(lower);
    written_is_in_memory(&config_);
    _tile_loadconfig(&config_);
    loaded_ = true;
  }

 private:
  TileConfig config_;
  bool loaded_ = false;
};

// Rows that one tile load reads: evenly apart.
struct RowTile {
  int64_t row;  // the first
  int64_t rows;
  int64_t pitch;  // bytes of lhs
};

// Cuts the rows of a block into tiles, from one place where they do not lie evenly to the next: as
// few as possible, nearly equal in height, for few configurations.
// Returns their number, at most a.rows.
inline int64_t cut_rows(const MxuBlockArgs& a, RowTile* tiles) {
  int64_t count = 0;
  for (int64_t row = 0; row < a.rows;) {
    int64_t left = even_run(a.row_at + row, a.rows - row);
    const int64_t pitch =
        left > 1 ? (a.row_at[row + 1] - a.row_at[row]) * kMxuSlotBytes : kRowBytes;
    while (left > 0) {
      const int64_t tiles_left = (left - 1) / kTileRows + 1;
      const int64_t rows = (left - 1) / tiles_left + 1;
      tiles[count++] = {row, rows, pitch};
      row += rows;
      left -= rows;
    }
  }
  return count;
}

// lhs of up to two tiles of rows.
struct LhsTiles {
  const uint8_t* upper;
  int64_t upper_pitch;  // bytes
  const uint8_t* lower;
  int64_t lower_pitch;
};

inline __attribute__((always_inline)) void fetch_tile(const uint8_t* at) {
#pragma GCC unroll 16
  for (int64_t row = 0; row < kTileRows; ++row) {
    _mm_prefetch(reinterpret_cast<const char*>(at + row * kRowBytes), _MM_HINT_T0);
  }
}

// Adds all segments to the results; each_segment() is called once each. The tiles of rhs come from
// the second-level cache: they are fetched two segments ahead.
template <bool kLower, bool kRight, class Each>
void add_segments(const MxuBlockArgs& a, const LhsTiles& lhs, const uint8_t* rhs,
                  const Each& each_segment) {
  constexpr int64_t kAhead = 2 * kSegmentBytes;
  for (int64_t s = 0; s < a.segment_count; ++s, rhs += kSegmentBytes) {
    const int64_t at = a.segment_at[s] * kMxuSlotBytes;
    _tile_loadd(4, lhs.upper + at, lhs.upper_pitch);
    _tile_loadd(6, rhs, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    fetch_tile(rhs + kAhead);
    if constexpr (kRight) {
      _tile_loadd(7, rhs + kTileBytes, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
      fetch_tile(rhs + kAhead + kTileBytes);
    }
    if constexpr (kLower) {
      _tile_loadd(5, lhs.lower + at, lhs.lower_pitch);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kRight) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    each_segment();
  }
}

}  // namespace
}  // namespace tpu::model
