// Pass `partition`: the global graph becomes the graph of one core. Today that is the work of
// jax.shard_map alone: its body is spliced in, what stands around it runs on every core.
//
//   func @main(%0: f32[16]) {                          func @main(%0: f32[2] sharded f32[16] by
//     %1 = manual_computation %0                             [{d}]) {
//            {in=([{d}]), out=([{d}])} : f32[16]   =>    %1 = abs %0 : f32[2]
//          (%2: f32[2]) { %3 = abs %2 .. }               return %1
//     return %1                                        } result 0 sharded f32[16] by [{d}]
//   }
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Refuses a jax.shard_map inside of a loop, a branch or another jax.shard_map, while calls still
// show how it is reached. Nothing to do for the graph of one core.
void check_shard_maps(const Module& module);

// Needs an inlined module; leaves the graph of one core as it is. Throws Error with the op and its
// source line: an op outside of shard_map works on a sharded array, an array arrives in another
// sharding than the one that is wanted, a dimension that cannot be cut into equal parts.
void partition(Module& module);

}  // namespace tpu::compiler
