// Results of the AMX kernels: between tile registers 0 to 3 and where they lie in memory. Included
// by one unit; everything is internal to it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "mxu/mxu_amx_pack.hpp"
#include "mxu/mxu_amx_tiles.hpp"
#include "mxu/mxu_fast_kernels.hpp"

namespace tpu::model {
namespace {

// The results of one block: two tiles of rows (the lower one may be absent) by a panel.
class TileResults {
 public:
  TileResults(const MxuBlockArgs& a, const MxuPanel& panel, const RowTile& upper,
              const RowTile* lower)
      : a_(a), panel_(panel), tiles_{&upper, lower} {}

  // Running values into the registers.
  void start() {
    if (a_.zero_start) {
      for (const RowTile* tile : tiles_) {
        fetch(tile);
      }
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    const Place upper = load(0);
    const Place lower = load(1);
    written_is_in_memory(values_);
    _tile_loadd(0, upper.at, upper.pitch);
    _tile_loadd(1, upper.at + kRowBytes, upper.pitch);
    if (tiles_[1] != nullptr) {
      _tile_loadd(2, lower.at, lower.pitch);
      _tile_loadd(3, lower.at + kRowBytes, lower.pitch);
    }
  }

  void finish() {
    const Place upper = a_.last ? buffer(0) : place(0);
    _tile_stored(0, upper.at, upper.pitch);
    _tile_stored(1, upper.at + kRowBytes, upper.pitch);
    if (tiles_[1] != nullptr) {
      const Place lower = a_.last ? buffer(1) : place(1);
      _tile_stored(2, lower.at, lower.pitch);
      _tile_stored(3, lower.at + kRowBytes, lower.pitch);
    }
    for (int64_t half = 0; half < 2; ++half) {
      if (tiles_[half] != nullptr && (a_.last || !in_place(half))) {
        store(half);
      }
    }
  }

 private:
  // Where a tile of running values and its right neighbour lie.
  struct Place {
    uint8_t* at;
    int64_t pitch;  // bytes
  };

  uint8_t* row(int64_t half, int64_t i) const {
    return a_.out + a_.row_out[tiles_[half]->row + i] + panel_.out_offset;
  }
  bool consecutive() const { return panel_.out_columns == nullptr && a_.n_out_stride == 4; }
  int64_t column(int64_t n) const {
    return panel_.out_columns != nullptr ? panel_.out_columns[n] : n * a_.n_out_stride;
  }

  int64_t out_pitch(int64_t half) const {
    return tiles_[half]->rows > 1 ? row(half, 1) - row(half, 0) : 0;
  }
  // Whole rows that lie evenly apart.
  bool in_place(int64_t half) const {
    return panel_.count == kSide && consecutive() &&
           evenly_apart(a_.row_out + tiles_[half]->row, tiles_[half]->rows, out_pitch(half));
  }
  Place buffer(int64_t half) {
    return {reinterpret_cast<uint8_t*>(values_[half * kTileRows]), sizeof values_[0]};
  }
  Place place(int64_t half) {
    return in_place(half) ? Place{row(half, 0), out_pitch(half)} : buffer(half);
  }

  // Lines of results come from memory while the terms are summed.
  void fetch(const RowTile* tile) const {
    if (tile == nullptr || a_.stream_out || !consecutive()) {
      return;
    }
    for (int64_t i = 0; i < tile->rows; ++i) {
      const uint8_t* const out = a_.out + a_.row_out[tile->row + i] + panel_.out_offset;
      __builtin_prefetch(out, 1);
      if (panel_.count > kTileRows) {
        __builtin_prefetch(out + kRowBytes, 1);
      }
    }
  }

  Place load(int64_t half) {
    if (tiles_[half] == nullptr) {
      return buffer(half);
    }
    if (!in_place(half)) {
      for (int64_t i = 0; i < tiles_[half]->rows; ++i) {
        load_row(row(half, i), values_[half * kTileRows + i]);
      }
    }
    return place(half);
  }

  void load_row(const uint8_t* from, float* to) const {
    if (consecutive()) {
      _mm512_store_ps(to, _mm512_maskz_loadu_ps(first_16(panel_.count), from));
      _mm512_store_ps(to + 16, _mm512_maskz_loadu_ps(first_16(panel_.count - 16), from + 64));
      return;
    }
    std::memset(to, 0, sizeof values_[0]);
    for (int64_t n = 0; n < panel_.count; ++n) {
      std::memcpy(to + n, from + column(n), sizeof(float));
    }
  }

  void store(int64_t half) {
    for (int64_t i = 0; i < tiles_[half]->rows; ++i) {
      store_row(values_[half * kTileRows + i], row(half, i));
    }
  }

  // Empty segments at the end of a tile of K add +0 to the running value. All taps have as many, so
  // those at the very end do for all: an earlier +0 changes a running value of -0 alone, and the
  // change lasts while all sums are -0, at most to that end.
  __m512 finished(__m512 value) const {
    const __m512 sum = a_.pads ? _mm512_add_ps(value, _mm512_setzero_ps()) : value;
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(
        _mm512_castps_si512(sum), _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q), 0x7fc00000));
  }

  void store_row(float* values, uint8_t* out) const {
    const __m512 left = finished(_mm512_load_ps(values));
    const __m512 right = finished(_mm512_load_ps(values + 16));
    if (!consecutive()) {
      _mm512_store_ps(values, left);
      _mm512_store_ps(values + 16, right);
      for (int64_t n = 0; n < panel_.count; ++n) {
        std::memcpy(out + column(n), values + n, sizeof(float));
      }
    } else if (a_.stream_out && panel_.count == kSide &&
               reinterpret_cast<uintptr_t>(out) % kRowBytes == 0) {
      _mm512_stream_ps(reinterpret_cast<float*>(out), left);
      _mm512_stream_ps(reinterpret_cast<float*>(out + kRowBytes), right);
    } else {
      _mm512_mask_storeu_ps(out, first_16(panel_.count), left);
      _mm512_mask_storeu_ps(out + kRowBytes, first_16(panel_.count - 16), right);
    }
  }

  const MxuBlockArgs& a_;
  const MxuPanel& panel_;
  const RowTile* tiles_[2];
  alignas(64) float values_[kSide][kSide];
};

}  // namespace
}  // namespace tpu::model
