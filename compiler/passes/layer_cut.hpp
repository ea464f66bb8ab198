// Layers of a backward pass read values of the layers of a forward pass, which a loop has to keep.
// What is cheap is computed again where it is read, from values of as few bytes as there can be:
// a minimal cut through the forward layer.
//   before   forward: a = dot(..); b = a + c; d = b * b; ..      backward: .. reads a, b and d
//   after    forward: the same                                   backward: b' = a + c; d' = b' * b'
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "passes/repeated_layers.hpp"

namespace tpu::compiler {

// Layer j of a reader reads of layer `first` + j * `step` of the maker. Layers need not begin at
// the same operation of a network, so that there may be several.
struct LayerWalk {
  int64_t first = 0, step = 0;
  bool operator==(const LayerWalk&) const = default;
};
std::vector<LayerWalk> walks_between(const RepeatedLayers& maker, const RepeatedLayers& reader);

// Both are planned. Others that read values of some layers of the maker, such as layers at the ends
// that are no part of the reader, compute them again too. True: `main` has more ops in the layers
// of the reader, so that lists of its ops hold no more.
bool recompute_in_reader(Region& main, const RepeatedLayers& maker, const RepeatedLayers& reader,
                         const LayerWalk& walk, const Uses& uses);

// What others than the layers of `runs` read of a widened value, a conversion or a broadcast, they
// widen themselves: the layers keep what takes fewer bytes. True: as above.
bool widen_outside(Region& main, const RepeatedLayers& maker,
                   const std::unordered_set<const Op*>& runs);

}  // namespace tpu::compiler
