// Cycle formulas of the matrix unit: when each tile of a command starts, when the next command may
// start, when the result is there. Offsets are core cycles from the command's start; a tile's start
// is the cycle in which its first row enters. The formulas of one array come from spec/rtl, as
// those of the RTL (rtl/mxu) do, and a test compares both, exactly:
//   load      the weights of a tile enter load_rows a cycle, behind the tile that streams
//   latency   L: a row that enters in cycle c leaves in cycle c + L
//   swap gap  G: the next tile's weights may enter G cycles after this tile's first row
// A tile that accumulates starts at least L + 1 cycles after the tile whose result it takes.
// Not here: VMEM port conflicts (not modelled), issue and queue latency (the core's).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arith/mxu_shape.hpp"

namespace tpu::spec {

constexpr uint64_t mxu_load_cycles(const MxuShape& s) {
  return rtl::mxu_load_cycles(s.rows, s.load_rows);
}

constexpr uint64_t mxu_latency(const MxuShape& s) {
  return rtl::mxu_latency(s.rows, s.cols, s.skew, s.segment_rows(), s.chains());
}

constexpr uint64_t mxu_swap_gap(const MxuShape& s) {
  return rtl::mxu_swap_gap(s.rows, s.skew, s.segment_rows(), s.chains());
}

// Least distance between the starts of a tile of `rows` rows and the next tile, accumulation aside.
constexpr uint64_t mxu_interval(const MxuShape& s, uint64_t rows) {
  return std::max(rows, mxu_load_cycles(s) + mxu_swap_gap(s));
}

// Extent of a command: out[rows, n_outer * n_inner] over taps * k.
struct MxuExtent {
  uint64_t rows = 1;     // M, all counted strides multiplied
  uint64_t taps = 1;     // t, a K tile never spans two of them
  uint64_t k = 1;        // per tap
  uint64_t n_outer = 1;  // an N tile never spans two of them
  uint64_t n_inner = 1;
};

// Start of tile i (order: tap, K tile, n outer, N tile) in closed form; every field O(1).
struct MxuCommandTiming {
  uint64_t k_tiles = 0;  // taps * tiles of a tap
  uint64_t n_tiles = 0;
  uint64_t load = 0;      // start of tile 0
  uint64_t interval = 0;  // between tiles of one K tile
  uint64_t round = 0;     // between K tiles
  uint64_t free_at = 0;   // the next command may start (its weights enter behind the last tile)
  uint64_t done_at = 0;   // the last result is stored and can be read

  constexpr uint64_t tiles() const { return k_tiles * n_tiles; }
  constexpr uint64_t start(uint64_t tile) const {
    return load + (tile / n_tiles) * round + (tile % n_tiles) * interval;
  }
};

// The extent must not be empty in any direction.
constexpr MxuCommandTiming mxu_command_timing(const MxuShape& s, const MxuExtent& e) {
  MxuCommandTiming t;
  t.k_tiles = e.taps * ((e.k + s.rows - 1) / s.rows);
  t.n_tiles = e.n_outer * ((e.n_inner + s.cols - 1) / s.cols);
  t.load = mxu_load_cycles(s);
  t.interval = mxu_interval(s, e.rows);
  t.round = std::max(t.n_tiles * t.interval, mxu_latency(s) + 1);
  const uint64_t last = t.start(t.tiles() - 1);
  t.free_at = last + t.interval - t.load;
  t.done_at = last + e.rows + mxu_latency(s);
  return t;
}

// The recurrence itself, for any list of tiles; mxu_command_timing folds it for the list of a
// command.
struct MxuTileRef {
  static constexpr size_t kNone = SIZE_MAX;
  uint64_t rows = 1;
  size_t accumulates_on = kNone;  // index of an earlier tile
};

inline std::vector<uint64_t> mxu_tile_starts(const MxuShape& s, std::span<const MxuTileRef> tiles) {
  std::vector<uint64_t> start(tiles.size());
  for (size_t i = 0; i < tiles.size(); ++i) {
    start[i] = i == 0 ? mxu_load_cycles(s) : start[i - 1] + mxu_interval(s, tiles[i - 1].rows);
    if (tiles[i].accumulates_on != MxuTileRef::kNone) {
      start[i] = std::max(start[i], start[tiles[i].accumulates_on] + mxu_latency(s) + 1);
    }
  }
  return start;
}

}  // namespace tpu::spec
