// Kernel pass `one_result`: a loop kernel that writes results of the program (the state that a
// training step updates) has a kernel for each of them, and one for all else that it writes.
//   before   0: loop  v' = f(v, g); m' = h(m, g, v'); p' = p - m'       v', m', p': results
//   after    0: loop  v' = f(v, g)
//            1: loop  m' = h(m, g, v')
//            2: loop  p' = p - m'
// What an earlier one writes, a later one reads; other values that both need are computed in both.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Needs `reads` and `writes` of the kernels (find_buffers) and keeps them right. A kernel whose
// parts cannot be loops of their own stays as it is.
void give_results_kernels(KernelProgram& program);

}  // namespace tpu::compiler
