// all_gather, all_to_all and collective_permute: every core sends its pieces straight to their
// places in memory of the others.
#pragma once

#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "plan/copy_dim.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

// all_gather and all_to_all. Step d of a group pairs position p with p xor d, or, in groups of
// another size than a power of two, sends from p to p + d. So a step is a permutation of all cores.
struct GroupSteps {
  std::vector<CopyDim> dims;                    // of a piece, on both sides
  int64_t src_step = 0, dst_step = 0;           // bytes: for receiver and sender by position
  std::vector<int64_t> position;                // of each core in its group
  std::vector<std::vector<int64_t>> receivers;  // of each core, by step; step 0: the core itself
  // Of the outermost loop of a piece, for kernels that begin with a part of it: transfers of all
  // members go part by part.
  int64_t parts = 1;
};

// The loop that is cut into parts: the outermost one with iterations.
size_t cut_loop(const std::vector<CopyDim>& dims);

// collective_permute: the pairs made a permutation of all cores, the end of each chain with its
// beginning. Cores that send nothing send zeros to those that receive nothing; then every piece
// passes through VMEM.
struct PermuteSteps {
  std::vector<int64_t> receiver, sends;  // by core; sends: 0 or 1
  bool partial = false;
  int64_t piece_bytes = 0;
  int64_t zero = -1;  // VMEM addresses
  std::array<int64_t, 2> staged{-1, -1};
};

// Of one operand.
struct DirectPlan {
  std::vector<Move> before, after;
  spec::Addr src{}, dst{};
  MemRange reads, writes;
  int64_t bytes = 0, unit = 4;  // of the operand, of an element
  std::variant<GroupSteps, PermuteSteps> steps;
};

// By operand. Nothing: too little VMEM. Throws Error for pieces that no command can move.
std::optional<std::vector<DirectPlan>> plan_direct(const Kernel& k, int64_t cores,
                                                   const spec::BoardParams& board,
                                                   Residency& memory, uint32_t op_id);

}  // namespace tpu::compiler
