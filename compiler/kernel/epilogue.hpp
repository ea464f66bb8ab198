// Epilogues: a loop kernel that reads a contraction's result element by element, and is its first
// reader, works on each block of sums in VMEM instead of on a buffer in HBM. The sums themselves go
// to HBM only if others read them too.
#pragma once

#include <optional>

#include "plan/contraction_plan.hpp"

namespace tpu::compiler {

// Joins such pairs of kernels: the loop kernel becomes `after` of the contraction.
void fuse_epilogues(KernelProgram& program);

// The two kernels again. False if kernel `order` has no epilogue.
bool split_epilogue(KernelProgram& program, int order);

// `m_at`, `n_at`: strides of the block's dims in its tile, in elements. Nothing if the block is not
// a box of the nest.
std::optional<NestBlock> nest_block(const Nest& nest, const Contraction& c, const Block& m,
                                    const Block& n, const Dims& m_at, const Dims& n_at);

// True if the blocks, in this order, carry the nest's reductions from the first iteration to the
// last in whole blocks of vectors, so that the sums do not depend on the tiles.
bool carries_reductions(const Nest& nest, const std::vector<NestBlock>& blocks);

}  // namespace tpu::compiler
