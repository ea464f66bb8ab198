// Epilogues: a loop kernel that reads a contraction's result element by element, and is its first
// reader, works on each block of sums in VMEM instead of on a buffer in HBM. The sums themselves go
// to HBM only if others read them too.
//   before   s = contract(q, k); m = loop: maximum of s
//            e = loop: exp(s - m), sum; p = loop: e / sum
//   after    p = contract(q, k), then on each block the loops of m, e and p
// More loop kernels follow on the same blocks where that keeps a large value in VMEM: what the
// kernels in front of them make is read element by element, or a number for each row.
#pragma once

#include <cstdint>
#include <limits>

#include "kernel/kernels.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

struct EpilogueOptions {
  // A loop over all elements becomes one over rows and one over columns, so that blocks need not be
  // of whole rows.
  bool by_columns = false;
  // Bytes of a value that may well stay in VMEM from kernel to kernel.
  int64_t kept_bytes = std::numeric_limits<int64_t>::max();
};

// Joins such kernels: the loop kernels become `after` of the contraction.
void fuse_epilogues(KernelProgram& program, const EpilogueOptions& options = {},
                    PassLog* log = nullptr);

// The last epilogue is a kernel of its own again. False if kernel `order` has none.
bool split_epilogue(KernelProgram& program, int order);

}  // namespace tpu::compiler
