// An all_reduce of small values and rests: packed into one area of VMEM, exchanged there, and
// taken out again. Results that are complete stay in the area.
#pragma once

#include <optional>

#include "plan/exchange/halving_plan.hpp"

namespace tpu::compiler {

// The kernel's bytes are cut into areas; each is exchanged behind the one before.
struct PackedPlan {
  std::vector<Move> before, after;  // packing, and stores of what had to leave; unpacking
  int64_t area = 0;                 // VMEM address
  int64_t used = 0, bytes = 0;      // of the area; the rest is zero
  int64_t unit = 4;                 // of an element
  // Large areas: halving, in pieces. Small ones: doubling, the whole area in every stage.
  bool halves = false;
  HalvingPlan halving;
  std::vector<int64_t> masks, landing;  // of each stage of doubling; the last one holds the sum

  int64_t sum() const { return landing.empty() ? area : landing.back(); }
};

// Nothing: too little VMEM.
std::optional<std::vector<PackedPlan>> plan_packed(const Kernel& k, const Exchange& exchange,
                                                   int64_t piece_bytes,
                                                   const spec::BoardParams& board,
                                                   Residency& memory, uint32_t op_id);

}  // namespace tpu::compiler
