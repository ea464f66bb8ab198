// Pass `roll`: equal layers that are written one after the other become a counted loop.
//   before   y0 = dot(x, w0); z0 = tanh(y0); y1 = dot(z0, w1); z1 = tanh(y1); y2 = dot(z1, w2); ..
//   after    for (i = 0, z = x; i < n; ++i) { z = tanh(dot(z, [w0, w1, w2, ..][i])) }
// An iteration may differ from the others in what it reads from outside: those values are stacked,
// and the iteration takes its own by the counter. Values that are read behind the loop, such as
// activations for the backward pass, are stacked in it. A later loop over the same layers, forwards
// or backwards, reads the same stacks; what is cheap it computes again (layer_cut.hpp). Each
// element is computed by the same operations in the same order, so that its bits stay.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "pass/pass_log.hpp"

namespace tpu::compiler {

struct RolledLayers {
  size_t layers = 0, ops = 0;  // ops: of a layer
  LocRef loc;                  // of its first op
};

// Loops over at least kFewestLayers layers with a product each. What is not rolled, and why, goes
// to the log.
inline constexpr size_t kFewestLayers = 3;
std::vector<RolledLayers> roll_layers(Module& module, PassLog* log = nullptr);

}  // namespace tpu::compiler
