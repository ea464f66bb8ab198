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

// Batches whose products are one command. Sums of a few rows over several tiles of K wait for each
// other, longer than a unit needs for a tile; beside each other, one product waits while the others
// run. The rows of all of them meet the weights of all of them, which costs nothing as long as
// there are few; the blocks on the diagonal are the results.
//   p[4 heads][1 row][2048] * v[2048][4 heads][128]: [4 rows][2048] * [2048][512], 4 of 16 blocks
struct BatchesBeside {
  int64_t n = 1;
  int64_t out_rows = 0, out_cols = 0;  // bytes between their blocks of sums
};

BatchesBeside batches_beside(const DotPlan& p, const spec::BoardParams& board);

}  // namespace tpu::compiler
