// Kernels that move windows by a list of element offsets. Tables and targets stay where they are,
// in HBM or VMEM; a list that lies in HBM passes through VMEM.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "plan/copy_dim.hpp"
#include "plan/residency.hpp"

namespace tpu::compiler {

// One side is addressed by the list, the other dense.
struct IndexedPlan {
  spec::Addr table{}, dense{};
  bool scatter = false;
  int64_t copied = 0;  // as in DynamicPlan
  int64_t unit = 4, window_elements = 1;
  int64_t span = 0;           // bytes of the table
  std::vector<CopyDim> dims;  // of a window: src = table, dst = dense side
  spec::Addr list{};
  int64_t records = 0, piece_records = 0;
  std::array<int64_t, 2> slots{-1, -1};  // VMEM of pieces of the list; -1: it lies there whole
};

// Nothing: too little VMEM. Moves are noted in `memory`; operands and result stay pinned.
std::optional<IndexedPlan> plan_indexed(const Kernel& k, const spec::BoardParams& board,
                                        Residency& memory, uint32_t op_id);

// True if the kernel may write over the operand: nobody reads it afterwards, and it was made in the
// same region (values from outside and region arguments must be there again in the next iteration
// of a loop).
bool may_overwrite(Residency& memory, const Kernel& k, const Buffer& from);
// The same for an operand in VMEM whose place a result may take: it has memory of its own there,
// and needs no copy at home.
bool may_take_vmem(Residency& memory, const Kernel& k, const Buffer& from);

}  // namespace tpu::compiler
