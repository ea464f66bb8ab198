// A program that says nothing of cores, made one for several: each core has a part of the batch and
// copies of all else. The program stays global, so that its results are those of the whole batch:
// the pass `partition` puts the sums over the cores where examples meet.
//
//   func @main(%0: f32[16,4],                   func @main(%0: f32[16,4] wanted [{data}, {}],
//              %1: f32[4]) {               =>              %1: f32[4] wanted [{}]) {
//     ..                                          ..
//   }                                           }  mesh data=8
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Cuts dimension 0 of these arguments into `cores` equal parts. Results that have that dimension
// too may be cut with them, if they do not take the memory of another argument; all others have
// copies.
// Throws Error: a program that has cores of its own (of jax.jit with a mesh, jax.shard_map), an
// argument that is not there or cannot be cut.
void cut_batch(Module& module, const std::vector<size_t>& arguments, int64_t cores);

}  // namespace tpu::compiler
