// Streams that serve several accesses of one value: taps of a window, even and odd rows.
#pragma once

#include "plan/loop_plan.hpp"

namespace tpu::compiler {

// Accesses that differ in their offset alone share the stream of access `first`, the last one of
// the plan, if they lie so close that one dense run for all of them is read faster.
void join_stream(const Nest& nest, size_t first, LoopPlan& plan);

// What the tiles of all inputs cost to load, in bytes. Where tiles cut the loops inside of a joined
// run, it has mostly elements that its tile does not use: rows of 24,576 elements, of which a tile
// takes 128 columns.
int64_t loaded_bytes(const Nest& nest, const LoopPlan& plan, const spec::BoardParams& board);

}  // namespace tpu::compiler
