// Tiles of loop kernels as commands: of their own (loop.cpp), or of the epilogue of a contraction.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "emit/context.hpp"
#include "plan/loop_plan.hpp"

namespace tpu::compiler {

// What the tiles of one kernel share, and the block of sums that an epilogue works on.
struct TileState {
  struct Program {
    VpuGenResult generated;
    int number = -1;  // in the listing; -1: not made yet
  };
  // By first and last tile of a reduction, and by the indexes of which each command has one value.
  std::map<std::tuple<bool, bool, std::map<int, int64_t>>, Program> programs;
  // The piece that was loaded last into a slot, by stream and slot: where it begins in its array.
  // The next tile may read the same one, as the heads of an attention read one mask.
  std::map<std::pair<int, int64_t>, std::pair<int64_t, std::vector<CopyDim>>> held;
  int64_t block = 0;  // VMEM address
  Dims block_stride;  // elements, per loop
};

// The kernel whose tiles are emitted.
struct TileSite {
  const Kernel& kernel;
  const LoopPlan& plan;
  const Places& places;
  uint32_t op_id;
};

// `count` iterations from `start`; `first`, `last`: of a reduction.
struct TileRange {
  const Dims &start, &count;
  bool first, last;
  int64_t number;
};

void emit_tile(EmitContext& ctx, const TileSite& site, TileState& state, const TileRange& tile);

}  // namespace tpu::compiler
