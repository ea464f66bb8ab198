// A contraction as it runs: mapping, tiles, what lies in VMEM; with the loop kernels that work on
// its blocks (epilogues).
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "plan/batch_group.hpp"
#include "plan/contraction_plan.hpp"
#include "plan/loop_plan.hpp"
#include "plan/moving_address.hpp"

namespace tpu::compiler {

// A block of an operand in VMEM: address of its element at indices 0; strides in bytes of the free
// dims and of the k dims.
struct Tile {
  int64_t address = 0;
  Dims free, k;
  int64_t batch = 0;  // between the iterations of a group (batch_group.hpp)
};

// A loop kernel on the blocks: its box for each block, in the order of the blocks.
struct EpiloguePlan {
  LoopPlan loop;
  std::vector<NestBlock> boxes;
};

// Slots that the blocks of an operand pass through. None: the operand is whole.
struct BlockRing {
  std::vector<int64_t> slots;
  int64_t bytes = 0, loads = 0;  // of a block; blocks that pass
};

struct ProductPlan;

struct DotPlan {
  Mapping w;
  TileLimits limits;
  TileChoice choice;
  std::vector<Block> m, n, k;
  BatchGroup group;
  BatchesBeside beside;
  BlockRing lhs, rhs;
  std::array<int64_t, 2> gathered{-1, -1}, transposed{-1, -1}, sum{-1, -1}, narrow{-1, -1},
      transposed_out{-1, -1};  // transposed: of rows or of their box
  std::vector<int64_t> temporary;
  int64_t out_vmem = -1;  // of the whole output
  std::vector<EpiloguePlan> epilogues;
  bool stores_sums = false;           // the sums go to HBM too
  const PieceOrder* order = nullptr;  // of the blocks of one side; null: as the loops are
  std::vector<size_t> piece_ends;     // of that side's blocks, behind the last one of each piece
  std::vector<ProductPlan> products;
};

// A contraction of its own that the blocks of another one meet in VMEM: batch by batch it takes
// what an epilogue of that one has made, as the products of probabilities and values do. It is
// planned and emitted together with that one.
struct ProductPlan {
  const Kernel* kernel = nullptr;
  uint32_t op_id = 0;
  DotPlan dot;
  bool held_left = false;           // which operand the epilogue makes
  size_t epilogue = 0, stream = 0;  // where it lies
};

// The blocks of rows and columns of a batch, in the order in which they run.
std::vector<std::pair<const Block*, const Block*>> blocks_in_order(const DotPlan& p);

std::vector<BoxLoop> box_loops(const std::vector<Contraction::Dim>& free, const Block& a,
                               const std::vector<Contraction::Dim>& k, const Block& b,
                               int64_t Contraction::Dim::*stride);

// Where the sums of block `number` go: the whole output, or a dense tile with the columns inside.
// The blocks of a group are parts of one tile.
Tile sum_tile(const DotPlan& p, size_t number, const Block& m, const Block& n, int64_t base);
// Strides of a block's dims in the tile that goes home, in elements: as the sums, or transposed.
// Returns that between the blocks of a group.
int64_t final_strides(const DotPlan& p, const Tile& sums, const Block& m, const Block& n,
                      Dims& m_at, Dims& n_at);

// What stays whole, the tiles, and their places. With little VMEM: the largest whole operand goes
// through blocks, then smaller blocks. Nothing: even the smallest do not fit.
std::optional<DotPlan> plan_dot(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                                uint32_t op_id);
// With the epilogues `k.contract().after`. Nothing: the last of them must run as a kernel of its
// own.
std::optional<DotPlan> plan_fused(const Kernel& k, Residency& memory,
                                  const spec::BoardParams& board, uint32_t op_id);
// With the operand of `next` in the slots of `chain`, a plan of `k`. Nothing: `next` has to wait
// for the end of `k`.
std::optional<ProductPlan> plan_product(const Kernel& k, const DotPlan& chain, const Kernel& next,
                                        Residency& memory, const MovingAddresses& moving,
                                        const spec::BoardParams& board, uint32_t op_id);
void release_dot(Residency& memory, DotPlan& p);

}  // namespace tpu::compiler
