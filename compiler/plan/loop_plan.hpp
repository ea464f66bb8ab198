// Tiles of loop kernels: operands that are not in VMEM are streamed through it tile by tile, two
// slots each. Tiles cut the loops from the outside in, in the order of the command (kept loops,
// then reduced ones), so that a cut never changes the order of a sum.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "plan/piece.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

// Loops on sublanes and lanes.
void choose_roles(const Nest& nest, VpuGenOptions& options);
// Order of the loops in a command; sets `inside_lanes`.
std::vector<int> choose_order(const Nest& nest, VpuGenOptions& options);

// `in_stream` of the operand that is a block of sums.
inline constexpr int kFromTile = -2;

// An operand that goes through VMEM in pieces.
struct Stream {
  const Value* value = nullptr;
  View view;
  bool output = false;
  int64_t reach = 0;  // input of several accesses (taps of a window): largest offset behind `view`
  int64_t slot_bytes = 0;
  std::vector<int64_t> slots;
  // Of epilogues on the same blocks: an output that only later ones read, which has no home; an
  // input that an earlier one has brought or made (`exact`), in the slots of that one.
  bool local = false, shared = false, exact = false;
};

struct LoopPlan {
  VpuGenOptions options;
  std::vector<int> order;            // of the loops: outside of the command, then in it
  std::vector<int> cut_order;        // in which tiles follow each other
  Dims tile;                         // iterations of a tile per loop
  int64_t piece_limit = 0;           // bytes of one operand and tile
  bool join = true;                  // accesses at near offsets share a stream
  std::vector<int> in_stream;        // per access: index of its stream, -1: resident
  std::map<int, int> out_stream;     // node -> stream
  std::vector<Stream> streams;       // inputs first
  std::vector<const Value*> whole;   // inputs and outputs that lie in VMEM as a whole
  std::vector<const Value*> forced;  // values that must be streamed: no room
  std::vector<int64_t> temporary;    // VMEM to give back
  int64_t carry = -1;                // accumulators between tiles
  int64_t carry_bytes = 0;
  bool cut_reduce = false;
  // Of an epilogue: the operand that is a block of sums in VMEM.
  const Value* from_tile = nullptr;
};

// Nothing: the kernel does not fit into VMEM beside what cannot leave it, even in its smallest
// tiles. The moves of buffers are noted in `memory`.
std::optional<LoopPlan> plan_loop(const Kernel& k, Residency& memory,
                                  const spec::BoardParams& board, uint32_t op_id);
// Nodes whose values go to memory.
std::vector<int> stored_nodes(const Kernel& k);
// Roles, order and stores of the kernel's program.
void choose_program(const Kernel& k, LoopPlan& plan);
// What is whole in VMEM and what streams. False: the whole ones alone are too much.
bool choose_streams(const Kernel& k, Residency& memory, const spec::BoardParams& board,
                    LoopPlan& plan);
// VMEM for operands and slots; false: there is too little.
bool place_loop(const Kernel& k, Residency& memory, LoopPlan& plan, uint32_t op_id);
// Gives the slots back; the plan still says where they are.
void release_loop(Residency& memory, LoopPlan& plan);

// Calls fn(start, count, first, last) for every tile, in lexicographic order of the loops.
// `first`, `last`: of the reduced loops.
void for_each_tile(const Kernel& k, const LoopPlan& plan,
                   const std::function<void(const Dims&, const Dims&, bool, bool)>& fn);

}  // namespace tpu::compiler
