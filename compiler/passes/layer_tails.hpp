// What main does behind equal layers for each of them, such as the updates of their weights.
//   layers   g0 = dot(..) ..   g1 = dot(..) ..   g2 = dot(..) ..
//   behind   m0' = m0 * 0.9 + g0; w0' = w0 - m0' * rate;  m1' = ..;  m2' = ..
// The tail of a layer are ops that need values of this layer, values that are the same for all
// layers, and arguments and constants of its own. It becomes a part of the loop over the layers, or
// a loop behind it where it needs something of all layers, such as the norm of all gradients.
#pragma once

#include <unordered_set>
#include <vector>

#include "passes/repeated_layers.hpp"

namespace tpu::compiler {

struct LayerTails {
  // By phase, by layer: ops that do the same, in equal order. Phase 0 needs nothing that is made of
  // what the layers make, each later phase needs something that is made of the ones before it.
  std::vector<std::vector<std::vector<Op*>>> phases;
};

// `layers` are planned. Ops of `others`, such as other layers, are in no tail. Nothing if main acts
// on the outside.
LayerTails find_tails(const Region& main, const RepeatedLayers& layers,
                      const std::unordered_set<const Op*>& others, const Uses& uses);

}  // namespace tpu::compiler
