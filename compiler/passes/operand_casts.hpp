// Pass `operand_casts`: a contraction reads an argument in f32 in place of its cast to bf16, since
// the matrix unit rounds operands as the cast does (docs/numerics.md).
//
//   %1 = convert %weights : bf16
//   %2 = dot_general %x, %1             =>      %2 = dot_general %x, %weights
//
// Casts that something else reads, too, stay for that.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Number of operands that have become arguments; removes casts that nobody reads any more.
size_t read_arguments_uncast(Module& module);

}  // namespace tpu::compiler
