// Pass `fold`: ops on constants are computed by the compiler, with the bits the board would give.
//
//   %1 = constant {value=8} : f32[]
//   %2 = constant {value=2} : f32[]           =>     %1 = constant {value=16} : f32[]
//   %3 = multiply %1, %2 : f32[]
//
// Only elementwise ops, data movement and iota are folded, and only up to kMaxFoldedElements
// results, or any size if all operands hold one repeated element. Sums and dots are left to the
// board.
#pragma once

#include "ir/graph.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

constexpr int64_t kMaxFoldedElements = 4096;

// True if anything was folded.
bool fold_constants(Module& module, PassLog* log = nullptr);

}  // namespace tpu::compiler
