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

// The results of one block after the other: two tiles of rows (the lower one may be absent) by a
// panel. They leave the registers for their place, if they are whole rows there, or for a buffer.
// What is left to do, a look for NaN and -0 or the way from the buffer, is done row by row while
// the next block is computed, because the last tile instructions of a block take long.
// Nothing is fetched ahead: prefetches of the place took more time than they saved.
class TileResults {
 public:
  explicit TileResults(const MxuBlockArgs& a)
      : a_(a),
        consecutive_(a.panels[0].out_columns == nullptr && a.n_out_stride == 4),
        buffered_(a.last && a.stream_out),
        step_rows_((kSide - 1) / a.segment_count + 1) {}
  ~TileResults() = default;
  TileResults(const TileResults&) = delete;
  TileResults& operator=(const TileResults&) = delete;

  // Running values into the registers.
  void start(const MxuPanel& panel, const RowTile& upper, const RowTile* lower) {
    set_block(panel, upper, lower);
    if (a_.zero_start) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    store_waiting(kSide);
    const Place places[2] = {load(0), load(1)};
    written_is_in_memory(values_);
    _tile_loadd(0, places[0].at, places[0].pitch);
    _tile_loadd(1, places[0].at + kRowBytes, places[0].pitch);
    if (now_.has_lower()) {
      _tile_loadd(2, places[1].at, places[1].pitch);
      _tile_loadd(3, places[1].at + kRowBytes, places[1].pitch);
    }
  }

  // Once a segment: a part of what waits.
  inline __attribute__((always_inline)) void step() {
    if (waiting_.rows != 0) {
      store_waiting(step_rows_);
    }
  }

  void store_all() { store_waiting(kSide); }

  void finish() {
    store_waiting(kSide);
    const Place upper = buffered_ ? buffer(0) : place(0);
    _tile_stored(0, upper.at, upper.pitch);
    _tile_stored(1, upper.at + kRowBytes, upper.pitch);
    if (now_.has_lower()) {
      const Place lower = buffered_ ? buffer(1) : place(1);
      _tile_stored(2, lower.at, lower.pitch);
      _tile_stored(3, lower.at + kRowBytes, lower.pitch);
    }
    written_is_in_memory(values_);
    waiting_ = now_;
    stored_ = 0;
    if (!a_.last && now_.whole()) {
      waiting_.rows = 0;
    }
  }

 private:
  // Where a tile of running values and its right neighbour lie.
  struct Place {
    uint8_t* at;
    int64_t pitch;  // bytes
  };

  struct Block {
    const MxuPanel* panel;
    int64_t first;     // row
    int64_t upper;     // rows of the upper tile
    int64_t rows;      // of both
    bool in_place[2];  // whole rows that lie evenly apart, of the upper and the lower tile
    int64_t pitch[2];  // bytes

    bool whole() const { return in_place[0] && in_place[1]; }
    bool has_lower() const { return rows > upper; }
    int64_t half(int64_t row) const { return row < upper ? 0 : 1; }
    int64_t begin(int64_t half) const { return half == 0 ? 0 : upper; }
    int64_t count(int64_t half) const { return half == 0 ? upper : rows - upper; }
  };

  uint8_t* out(const Block& block, int64_t row) const {
    return a_.out + a_.row_out[block.first + row] + block.panel->out_offset;
  }
  float* values(const Block& block, int64_t row) {
    return values_[row < block.upper ? row : kTileRows + row - block.upper];
  }
  static int64_t column(const MxuBlockArgs& a, const MxuPanel& panel, int64_t n) {
    return panel.out_columns != nullptr ? panel.out_columns[n] : n * a.n_out_stride;
  }

  void set_block(const MxuPanel& panel, const RowTile& upper, const RowTile* lower) {
    const int64_t rows = upper.rows + (lower != nullptr ? lower->rows : 0);
    const bool same_rows = now_.rows == rows && now_.first == upper.row && now_.whole();
    now_.panel = &panel;
    now_.first = upper.row;
    now_.upper = upper.rows;
    now_.rows = rows;
    if (!consecutive_ || panel.count != kSide) {
      now_.in_place[0] = now_.in_place[1] = false;
    } else if (!same_rows) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t* const places = a_.row_out + now_.first + now_.begin(half);
        const int64_t count = now_.count(half);
        now_.pitch[half] = count > 1 ? places[1] - places[0] : 0;
        now_.in_place[half] = evenly_apart(places, count, now_.pitch[half]);
      }
    }
  }

  Place buffer(int64_t half) {
    return {reinterpret_cast<uint8_t*>(values_[half * kTileRows]), sizeof values_[0]};
  }
  Place place(int64_t half) {
    return now_.in_place[half] ? Place{out(now_, now_.begin(half)), now_.pitch[half]}
                               : buffer(half);
  }

  Place load(int64_t half) {
    if (now_.count(half) == 0) {
      return buffer(half);
    }
    const Place found = place(half);
    const bool gathered = found.at == buffer(half).at;
    for (int64_t i = now_.begin(half); gathered && i < now_.begin(half) + now_.count(half); ++i) {
      load_row(out(now_, i), values(now_, i));
    }
    return found;
  }

  void load_row(const uint8_t* from, float* to) const {
    const MxuPanel& panel = *now_.panel;
    if (consecutive_) {
      _mm512_store_ps(to, _mm512_maskz_loadu_ps(first_16(panel.count), from));
      _mm512_store_ps(to + 16, _mm512_maskz_loadu_ps(first_16(panel.count - 16), from + 64));
      return;
    }
    std::memset(to, 0, sizeof values_[0]);
    for (int64_t n = 0; n < panel.count; ++n) {
      std::memcpy(to + n, from + column(a_, panel, n), sizeof(float));
    }
  }

  void store_waiting(int64_t rows) {
    const int64_t end = stored_ + rows < waiting_.rows ? stored_ + rows : waiting_.rows;
    for (; stored_ < end; ++stored_) {
      if (!buffered_ && waiting_.in_place[waiting_.half(stored_)]) {
        check_row(out(waiting_, stored_));
      } else {
        store_row(waiting_, stored_);
      }
    }
    if (stored_ == waiting_.rows) {
      waiting_.rows = stored_ = 0;
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

  static bool has_minus_zero(__m512 values) {
    return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(values), _mm512_set1_epi32(INT32_MIN)) != 0;
  }

  // Of results in their place.
  inline __attribute__((always_inline)) void check_row(uint8_t* row) const {
    if (!a_.last) {
      return;
    }
    const __m512 left = _mm512_loadu_ps(row);
    const __m512 right = _mm512_loadu_ps(row + kRowBytes);
    const __mmask16 nan = _mm512_cmp_ps_mask(left, right, _CMP_UNORD_Q);
    if (nan != 0 || (a_.pads && (has_minus_zero(left) || has_minus_zero(right)))) [[unlikely]] {
      _mm512_storeu_ps(row, finished(left));
      _mm512_storeu_ps(row + kRowBytes, finished(right));
    }
  }

  void store_row(const Block& block, int64_t row) {
    const MxuPanel& panel = *block.panel;
    uint8_t* const to = out(block, row);
    float* const from = values(block, row);
    __m512 left = _mm512_load_ps(from);
    __m512 right = _mm512_load_ps(from + 16);
    if (a_.last) {
      left = finished(left);
      right = finished(right);
    }
    if (!consecutive_) {
      _mm512_store_ps(from, left);
      _mm512_store_ps(from + 16, right);
      for (int64_t n = 0; n < panel.count; ++n) {
        std::memcpy(to + column(a_, panel, n), from + n, sizeof(float));
      }
    } else if (panel.count != kSide) {
      _mm512_mask_storeu_ps(to, first_16(panel.count), left);
      _mm512_mask_storeu_ps(to + kRowBytes, first_16(panel.count - 16), right);
    } else if (a_.stream_out && reinterpret_cast<uintptr_t>(to) % kRowBytes == 0) {
      _mm512_stream_ps(reinterpret_cast<float*>(to), left);
      _mm512_stream_ps(reinterpret_cast<float*>(to + kRowBytes), right);
    } else {
      _mm512_storeu_ps(to, left);
      _mm512_storeu_ps(to + kRowBytes, right);
    }
  }

  const MxuBlockArgs& a_;
  const bool consecutive_;  // columns of results
  const bool buffered_;     // all results go through the buffer
  const int64_t step_rows_;
  Block now_{};
  Block waiting_{};  // no rows: nothing waits
  int64_t stored_ = 0;
  alignas(64) float values_[kSide][kSide];
};

}  // namespace
}  // namespace tpu::model
