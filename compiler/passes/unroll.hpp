// Pass `unroll`: short counted loops of elementwise work become straight code, which then fuses.
// The rounds of JAX's threefry are such a loop (five times, rotations carried as arrays).
//   before   while (i = 0; i < 5; i = i + 1) { x = x + i }
//   after    x + 0 + 1 + 2 + 3 + 4
// Only loops of few iterations and few ops, without anything but elementwise ops, views and
// constants in them.
#pragma once

#include "ir/graph.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

// True if anything was unrolled.
// `log`: loops that stay, and why.
bool unroll_loops(Module& module, PassLog* log = nullptr);

}  // namespace tpu::compiler
