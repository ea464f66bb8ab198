// Pass `pipelined_gathers`: a loop gathers what the next iteration begins with.
//   before   while i, x: w = all_gather(row i of W); y = f(x, w); g(y)
//   after    w0 = all_gather(row 0 of W)
//            while i, x, w = w0: y = f(x, w); w' = all_gather(row i + 1 of W); g(y); carry w'
// Layers of FSDP in a scan begin with an all_gather of weights. Nothing in the iteration can run
// beside it, but the products behind its last reader can run beside that of the next iteration.
// Such a gather depends on the counter and on what the loop does not change alone, comes in front
// of all products, and has a product behind its last reader, so that its result is made where it is
// carried. The last iteration gathers once more than is read; dynamic slices clamp their indices.
// The values are the same operations on the same operands.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// True if anything changed.
bool pipeline_gathers(Module& module);

}  // namespace tpu::compiler
