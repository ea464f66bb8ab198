// Pass `rng`: numbers that a program draws without a state of its own, as those of a generator
// (Philox) whose state goes through the program. It begins with Module::rng_seed.
//   before   while (%i) { %x = rng uniform %a, %b .. }
//   after    while (%i, %s) { %s', %bits = rng_bit_generator %s; %x = %a + (%b - %a) * .. }
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Of a module without calls. True if there were any such ops.
bool expand_rng(Module& module);

}  // namespace tpu::compiler
