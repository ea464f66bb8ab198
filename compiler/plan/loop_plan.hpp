// Tiles of loop kernels: what a piece of an operand looks like in VMEM, and the plan of one kernel.
// Private to emit_loop.cpp (planning) and emit_tile.cpp (commands of one tile).
#pragma once

#include <array>
#include <map>
#include <set>
#include <vector>

#include "emit/emitter.hpp"

namespace tpu::compiler {

// The vector register of the ISA.
inline constexpr int64_t kLanes = 128, kSublanes = 8, kFlatBlock = 1024;
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
// runs with this many elements behind their last one, for accesses at other offsets.
Piece make_piece(const View& view, const Dims& start, const Dims& count, bool exact,
                 int64_t reach = 0);

// Granule of a cut, so that blocks stay whole.
int64_t granule(const VpuGenOptions& options, int loop);

// `in_stream` of the operand that is a block of sums.
inline constexpr int kFromTile = -2;

// Loops on sublanes and lanes.
void choose_roles(const Nest& nest, VpuGenOptions& options);
// Order of the loops in a command.
std::vector<int> choose_order(const Nest& nest, const VpuGenOptions& options);

// Strides of what a node stores: dense over all loops, or over the kept ones.
Dims store_strides(const Nest& nest, bool reduce_result);

// An operand that goes through VMEM in pieces.
struct Emitter::Stream {
  const Value* value = nullptr;
  View view;
  bool output = false;
  int64_t reach = 0;  // input of several accesses (taps of a window): largest offset behind `view`
  int64_t slot_bytes = 0;
  std::vector<int64_t> slots;
};

struct Emitter::LoopPlan {
  VpuGenOptions options;
  std::vector<int> order;           // of the loops: outside of the command, then in it
  std::vector<int> cut_order;       // in which tiles follow each other
  Dims tile;                        // iterations of a tile per loop
  int64_t piece_limit = 0;          // bytes of one operand and tile
  std::vector<int> in_stream;       // per access: index of its stream, -1: resident
  std::map<int, int> out_stream;    // node -> stream
  std::vector<Stream> streams;      // inputs first
  std::vector<const Value*> whole;  // inputs and outputs that lie in VMEM as a whole
  std::set<const Value*> forced;    // values that must be streamed: no room
  std::vector<int64_t> temporary;   // VMEM to give back
  int64_t carry = -1;               // accumulators between tiles
  int64_t carry_bytes = 0;
  bool cut_reduce = false;
  // Epilogue: the operand that is a block of sums in VMEM, and where the block at hand lies.
  const Value* from_tile = nullptr;
  int64_t tile_at = 0;
  Dims tile_stride;  // elements, per loop
  // Programs by first (1) and last (2) tile of a reduction; all tiles of a kind share one.
  struct Program {
    VpuGenResult generated;
    int number = -1;  // in the listing; -1: not made yet
  };
  std::array<Program, 4> programs;
};

}  // namespace tpu::compiler
