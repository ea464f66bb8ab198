// Pass `cse`: ops that compute the same value are merged into the first of them.
//
//   %1 = multiply %0, %0
//   %2 = multiply %0, %0            =>     %1 = multiply %0, %0
//   %3 = add %1, %2                        %2 = add %1, %1
//
// Same means: kind, operands, attributes, result types and regions. Loop and branch bodies see the
// values outside; bodies of reductions and the like stay closed. `rng` is never merged.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Returns the number of merged ops.
size_t merge_common_ops(Module& module);

}  // namespace tpu::compiler
