// Pass `barrier_order`: contractions that read recomputed values are done before the next values
// are computed again.
//   before   %b = barrier 1; h = f(%b); x = g(h); %c = barrier 2 of x; k = f(%c); k^T y; h^T y
//   after    %b = barrier 1; h = f(%b); x = g(h); h^T y; %c = barrier 2 of x; k = f(%c); k^T y
// A program may have the gradients of all weights at its end, as PyTorch/XLA gives them. The pass
// `form` keeps the order of contractions, so that what is computed again for all layers would be
// kept until then.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// For the body of main. True if anything was moved.
bool order_behind_barriers(Module& module);

}  // namespace tpu::compiler
