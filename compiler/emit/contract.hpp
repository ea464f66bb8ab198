// Commands of one block of a contraction. Private to the files of contractions.
#pragma once

#include <array>
#include <vector>

#include "emit/loop.hpp"
#include "plan/dot_plan.hpp"

namespace tpu::compiler {

// Blocks so far: slots alternate.
struct BlockState {
  size_t lhs = 0, rhs = 0, out = 0;
  size_t lhs_boxes = 0;  // loads of rows that serve a group of batches
  std::vector<TileState> epilogues;
};

// Of the block with this number; -1: the operand is whole.
inline int64_t slot_of(const BlockRing& ring, size_t number) {
  return ring.slots.empty() ? -1 : ring.slots[number % ring.slots.size()];
}

// contract_tiles.cpp: the block of an operand, whole in VMEM or loaded into `slot`.
Tile operand_tile(EmitContext& ctx, const Places& places, const Value* v, int64_t base, bool whole,
                  int64_t slot, const std::vector<BoxLoop>& loops, size_t free, uint32_t id);
// The block of an operand for each iteration of a group of batches.
Tile group_tile(EmitContext& ctx, const DotPlan& p, const Places& places, const Value* v,
                int64_t base, int64_t slot, std::vector<BoxLoop> loops, size_t free,
                int64_t batch_stride, uint32_t id);
// The rows of the block with the number `slot`, as the matrix units read them. `loaded`: their
// tile, if a group's load brought it.
Tile left_tile(EmitContext& ctx, const DotPlan& p, const Places& places, int64_t base, size_t slot,
               const Block& m, const Block& k, const Tile* loaded, uint32_t id);
void transpose(CommandSink& sink, int64_t src, int64_t dst, int64_t bytes, int64_t rows,
               int64_t cols, int64_t src_pitch, int64_t dst_pitch, uint32_t id);

// matmul.cpp: one block, shared by the units, or by that unit alone of which it is the turn; f32 to
// bf16, dense.
void matmul(EmitContext& ctx, const DotPlan& p, const Tile& left, const Tile& right,
            const Tile& out, const Block& m, const Block& n, const Block& k, bool accumulate,
            size_t turn, uint32_t id);
void convert_tile(CommandSink& sink, int64_t from, int64_t to, int64_t count, uint32_t id);

}  // namespace tpu::compiler
