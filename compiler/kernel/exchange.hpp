// Groups of cores that exchange pairwise: partner = core id xor mask.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Masks that generate all groups, in reduced form (each has a highest bit that no other has), and
// those bits. Groups must be the cosets of one set of masks.
struct Exchange {
  std::vector<int64_t> masks;
  std::vector<int> bits;

  size_t stages() const { return masks.size(); }
};

// Throws Error for groups that are not closed under exchange.
Exchange exchange_of(const Op& op, int64_t cores);

// True where odd cores do the stages 1 and 2 of halving in the other order, so that both links of a
// chip are busy.
inline bool crosses_over(const Exchange& e) { return e.masks == std::vector<int64_t>{1, 2, 4}; }

// By core: its partner in stage `stage` of halving.
std::vector<int64_t> stage_partners(const Exchange& e, size_t stage, int64_t cores);

// Which of the 2^stages equal parts of a piece core `core` owns after halving.
int64_t owned_part(const Exchange& e, int64_t core);

}  // namespace tpu::compiler
