// Blocks of a contraction as boxes of the loop nest that is its epilogue (kernel/epilogue.hpp).
#pragma once

#include <optional>
#include <vector>

#include "plan/contraction_plan.hpp"

namespace tpu::compiler {

// `batch`: one iteration of each of its dims. `m_at`, `n_at`: strides of the block's dims in its
// tile, in elements. Nothing if the block is not a box of the nest.
std::optional<NestBlock> nest_block(const Nest& nest, const Contraction& c, const Block& batch,
                                    const Block& m, const Block& n, const Dims& m_at,
                                    const Dims& n_at);

// True if each block holds the reductions of the nest from the first iteration to the last.
bool holds_reductions(const Nest& nest, const std::vector<NestBlock>& blocks);

// True if the blocks, in this order, carry the nest's reductions from the first iteration to the
// last in whole blocks of vectors, so that the sums do not depend on the tiles.
bool carries_reductions(const Nest& nest, const std::vector<NestBlock>& blocks);

}  // namespace tpu::compiler
