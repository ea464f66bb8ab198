// A job cut into the array's tiles, and the packing of a tile's operands as the array takes them
// (bf16, padded with +0). Shared by the scalar, RTL and lockstep engines; the order of tiles is the
// order of the hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mxu/mxu_engine.hpp"

namespace tpu::model {

struct MxuTile {
  int64_t lhs_offset;  // bytes, of the tile's first k
  int64_t rhs_offset;  // bytes, of its tap and first column; k.rhs comes on top
  int64_t out_offset;  // bytes, of its first column
  int64_t k_first;     // index into the flattened k of its tap
  int64_t k_rows;      // 1..shape.rows
  int64_t cols;        // 1..shape.cols
  int64_t n_tile;      // tiles of equal n_tile accumulate on each other, in order
  bool first;          // of its n_tile: starts from out or +0
};

// Byte offsets of every row of the job, and of every k of a tap in rhs.
struct MxuOffsets {
  std::vector<int64_t> row_lhs, row_out, k_rhs;
};

std::vector<MxuTile> mxu_tiles(const MxuJob& job, const spec::MxuShape& shape);
MxuOffsets mxu_offsets(const MxuJob& job);

// weights[row * shape.cols + col] for all rows and columns of the array.
void mxu_pack_weights(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                      const spec::MxuShape& shape, uint16_t* weights);
// x[row of the array] of one row of the job.
void mxu_pack_row(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                  const spec::MxuShape& shape, size_t row, uint16_t* x);

// Result bits of one row of a tile, from and to memory (columns beyond the tile read as +0 and are
// not written).
void mxu_load_out(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile,
                  const spec::MxuShape& shape, size_t row, uint32_t* bits);
void mxu_store_out(const MxuJob& job, const MxuOffsets& offsets, const MxuTile& tile, size_t row,
                   const uint32_t* bits);

}  // namespace tpu::model
