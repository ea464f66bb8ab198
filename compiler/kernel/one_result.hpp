// Kernel pass `one_result`: loop kernels that write several values become one kernel for each of
// them.
//   before   0: loop  v' = f(v, g); m' = h(m, g, v'); p' = p - m'
//   after    0: loop  v' = f(v, g)
//            1: loop  m' = h(m, g, v')
//            2: loop  p' = p - m'
// What an earlier one writes, a later one reads; other values that both need are computed in both.
// All sums of a kernel stay together, with the values that they are sums of.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Needs `reads` and `writes` of the kernels (find_buffers) and keeps them right. A kernel whose
// parts cannot be loops of their own stays as it is.
void give_results_kernels(KernelProgram& program);

}  // namespace tpu::compiler
