// What a tile of a loop kernel touches of an operand: a piece of a buffer as it lies in VMEM.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "command/vpu_footprint.hpp"
#include "plan/copy_dim.hpp"
#include "vpu/vpu_gen.hpp"

namespace tpu::compiler {

// The vector register of the ISA.
inline constexpr int64_t kLanes = spec::kVpuLanes, kSublanes = spec::kVpuSublanes,
                         kFlatBlock = kLanes * kSublanes;
inline constexpr int64_t kBlockBytes = kFlatBlock * 4;

// A part of a buffer as it lies in VMEM: element strides along the loops, and the copy that loads
// or stores it.
struct Piece {
  int64_t first = 0;   // element of the buffer that the copy starts at
  int64_t origin = 0;  // element index in the piece of the tile's first iteration
  int64_t elements = 0;
  Dims stride;                // in the piece, per loop
  std::vector<CopyDim> dims;  // in elements: src = buffer, dst = piece
};

// The piece of the tile of `count` iterations from `start`.
// `exact`: without holes, since a store must not write what is between the elements. `reach` > 0:
// runs with this many elements behind their last one, for accesses at other offsets. `most`:
// elements that its slot holds. A tile that is shorter than the one that the slot was made for may
// have room for fewer holes.
Piece make_piece(const View& view, const Dims& start, const Dims& count, bool exact,
                 int64_t reach = 0, int64_t most = std::numeric_limits<int64_t>::max());

// Granule of a cut, so that blocks stay whole.
int64_t granule(const VpuGenOptions& options, int loop);

// Strides of what a node stores: dense over all loops, or over the kept ones.
Dims store_strides(const Nest& nest, bool reduce_result);

}  // namespace tpu::compiler
