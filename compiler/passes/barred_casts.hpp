// Pass `barred_casts`: what is gathered again behind a barrier is not cast again.
//   before   c = convert w; x = all_gather c; %b, .. = barrier w, g; y = all_gather convert %b
//   after    c = convert w; x = all_gather c; %d, .. = barrier c, g; y = all_gather %d
// Layers of FSDP under jax.checkpoint gather their weights again in the backward pass. The cast of
// a weight shard is behind the barrier and depends on an argument alone, so `form` fuses it with
// the updates of the layer above, which wait for its gradients. A gather of what the forward
// pass has cast can begin beside that layer. What is kept for it is a narrow copy of the core's own
// part.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// For the body of main. True if anything changed; the casts that nothing reads any more stay.
bool cast_in_front_of_barriers(Module& module);

}  // namespace tpu::compiler
