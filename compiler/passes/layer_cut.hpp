// Layers of a backward pass read values of the layers of a forward pass, which a loop has to keep.
// What is cheap is computed again where it is read, from values of as few bytes as there can be:
// a minimal cut through the forward layer.
//   before   forward: a = dot(..); b = a + c; d = b * b; ..      backward: .. reads a, b and d
//   after    forward: the same                                   backward: b' = a + c; d' = b' * b'
#pragma once

#include "passes/repeated_layers.hpp"

namespace tpu::compiler {

// Both are planned. True: `main` has more ops in the layers of the reader, so that lists of its ops
// hold no more.
bool recompute_in_reader(Region& main, const RepeatedLayers& maker, const RepeatedLayers& reader,
                         const Uses& uses);

}  // namespace tpu::compiler
