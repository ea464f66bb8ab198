// Epilogues: a loop kernel that reads a contraction's result element by element, and is its first
// reader, works on each block of sums in VMEM instead of on a buffer in HBM. The sums themselves go
// to HBM only if others read them too.
#pragma once

#include "kernel/kernels.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

// Joins such pairs of kernels: the loop kernel becomes `after` of the contraction. `by_columns`: a
// loop over all elements becomes one over rows and one over columns, so that blocks need not be of
// whole rows.
void fuse_epilogues(KernelProgram& program, bool by_columns = false, PassLog* log = nullptr);

// The two kernels again. False if kernel `order` has no epilogue.
bool split_epilogue(KernelProgram& program, int order);

}  // namespace tpu::compiler
