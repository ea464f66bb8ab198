// Passes `splice` and `partition`: the global graph becomes the graph of one core. Both need an
// inlined module and leave the graph of one core as it is.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// A program that is the work of jax.shard_map alone, in which nothing has to move: its bodies are
// spliced in, what stands around them runs on every core. Other programs stay global, without
// constraints that ask for nothing.
//
//   func @main(%0: f32[16]) {                          func @main(%0: f32[2] sharded f32[16] by
//     %1 = manual_computation %0                             [{d}]) {
//            {in=([{d}]), out=([{d}])} : f32[16]   =>    %1 = abs %0 : f32[2]
//          (%2: f32[2]) { %3 = abs %2 .. }               return %1
//     return %1                                        } result 0 sharded f32[16] by [{d}]
//   }
void splice(Module& module);

// Any program: shardings of arguments, results and constraints spread over the graph, each op works
// on the parts that a core has, and collectives stand where parts must meet (Module::moved).
//
//   func @main(%0: f32[16,4] sharded [{d}, {}]) {      func @main(%0: f32[2,4] sharded f32[16,4] by
//     %1 = reduce %0, 0 {dims=[0]} : f32[4]      =>          [{d}, {}]) {
//     return %1                                          %1 = reduce %0, 0 {dims=[0]} : f32[4]
//   }                                                    %2 = all_reduce %1 : f32[4]
//                                                        return %2
//                                                      }
//
// Throws Error for an argument or result whose dimension cannot be cut into equal parts.
void partition(Module& module);

}  // namespace tpu::compiler
