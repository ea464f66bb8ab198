// A block of a strided operand as it lies in VMEM. The loops of a block may overlap in memory (the
// positions and taps of a window): the box holds every element once, halo included.
//   loops (n, stride): rows (24, 6656), columns (24, 256), taps (3, 256), channels (256, 1)
//   box: dims (24, 6656), (26, 256), (256, 1), dense in VMEM; columns and taps share a stride there
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.hpp"
#include "plan/copy_dim.hpp"
#include "plan/range_allocator.hpp"

namespace tpu::compiler {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct BoxLoop {
  int64_t n = 1, stride = 0;  // elements of the operand
};

struct TileBox {
  int64_t first = 0;     // first element of the box, relative to the block's element at indices 0
  int64_t origin = 0;    // where that element lies in the box
  int64_t elements = 0;  // of the dense box
  Dims stride;           // in the box, per loop
  std::vector<CopyDim> dims;  // in elements: src = operand, dst = box; outermost first
};

// `exact`: no element between the loops' elements may be touched (a store).
TileBox make_box(const std::vector<BoxLoop>& loops, bool exact);

}  // namespace tpu::compiler
