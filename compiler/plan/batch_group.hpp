// Which iterations of a contraction's batch pass HBM together. The heads of an attention lie side
// by side in a row of features: a block of one head of 64 bf16 has runs of 128 bytes, and each
// costs as much as a run of a whole DMA granule. A block of four heads has runs of 512 bytes.
//   q[512 tokens][16 heads][64]: 4 loads of [512][4 heads][64] in place of 16 of [512][64]
#pragma once

#include <cstdint>

#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

struct DotPlan;

struct BatchGroup {
  int64_t n = 1;                               // iterations of the innermost batch loop
  bool lhs = false, rhs = false, out = false;  // whose blocks hold them all
};

// Of a contraction whose batches are one block each; else none. `out_bytes`: of an element.
BatchGroup choose_batch_group(const DotPlan& p, int64_t out_bytes, const spec::BoardParams& board);

}  // namespace tpu::compiler
