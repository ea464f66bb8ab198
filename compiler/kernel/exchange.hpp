// Groups of cores that exchange pairwise: partner = core id xor mask.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

// Masks that generate all groups, in reduced form (each has a highest bit that no other has), and
// those bits, by stage. Groups must be the cosets of one set of masks.
struct Exchange {
  std::vector<int64_t> masks;
  std::vector<int> bits;
  // By stage of halving: which of the masks odd cores take, so that links of both dimensions are
  // busy. Empty: the same.
  std::vector<size_t> of_odd;

  size_t stages() const { return masks.size(); }
  bool crosses_over() const { return !of_odd.empty(); }
  size_t mask_of(int64_t core, size_t stage) const {
    return crosses_over() && (core & 1) != 0 ? of_odd[stage] : stage;
  }
};

// Partitions in a row of the torus, if partition p runs on core p; 0: chips do not have two cores.
int64_t row_cores(const spec::BoardParams& board);

// Throws Error for groups that are not closed under exchange. `row`: of row_cores(). Stages go from
// x to y and back, near partners first, and odd cores begin with y: then half of a piece is on
// links of x while the other is on those of y, and little is left for far partners. A row of 0
// leaves the masks in ascending order, and gives the same stages.
Exchange exchange_of(const Op& op, int64_t cores, int64_t row = 0);

// By core: its partner in stage `stage` of halving.
std::vector<int64_t> stage_partners(const Exchange& e, size_t stage, int64_t cores);

// Which of the 2^stages equal parts of a piece core `core` owns after halving.
int64_t owned_part(const Exchange& e, int64_t core);

}  // namespace tpu::compiler
