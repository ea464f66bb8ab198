// Kernel pass `full_blocks`: where the innermost dimension is shorter than a block has rows, such
// as the four words of a Philox counter, and the lanes go along the one outside of it, most rows of
// a block would be empty. So the outer loop is cut, and its two parts are rows and lanes.
//   before   loops [4194304][4]      blocks of 4 rows, 128 lanes
//   after    loops [32768][128][4]   blocks of 8 rows, 128 lanes
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Of one program, not of its regions.
void fill_blocks(KernelProgram& program);

}  // namespace tpu::compiler
