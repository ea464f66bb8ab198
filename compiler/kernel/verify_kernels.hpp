// Checks of a kernel program: what every kernel pass must keep.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Throws Error that names the kernel:
//   - orders count up through the program, those of regions between the owner's `order` and `end`
//   - a value that a kernel reads is made by a kernel in front of it, in its own program or in one
//     around it, or is an argument or something that is never computed (constant, iota, a view)
//   - one kernel writes a value; pieces of an exchange, and what is left of it, may be several's
//   - regions belong to while and branch, and each ends with its only yield
//   - what a region copies to results of main comes at its end: only the yield is behind that
//   - a kernel has what its class needs: see the fields of Kernel
void verify(const KernelProgram& program);

}  // namespace tpu::compiler
