// The passes between import and kernels, in order.
#pragma once

#include "entry/style.hpp"
#include "instrument/finite_watch.hpp"
#include "passes/pass_manager.hpp"
#include "passes/roll.hpp"

namespace tpu::compiler {

// From the global graph, as the import makes it, to the canonical graph of one core: inline,
// static_sizes, rng, split_complex, splice, partition (of a simplified graph), simplify
// (canonicalise, fold, cse, dce until nothing changes), each also under its own name for dumps.
// Afterwards there is no call, composite, clamp, complex array, dead op, or convert to the same
// type, and an optimization_barrier only where equal values are in front of it and behind it.
const GraphPasses& canonical_passes();

// Those in front of `splice`, for a program of one core that shall stand within another one:
// complex arguments and results of main are two values.
const GraphPasses& part_passes();

// All passes in front of kernels: canonical_passes(), unroll, and what leaves only ops that have a
// kernel.
const GraphPasses& compile_passes();

// What a compilation asks for beyond them: each is a pass of its own.
struct GraphOptions {
  StyleRules rules;
  // Loops gather for the next iteration; told here if there is one that does. Null: none does.
  bool* pipelined = nullptr;
  FiniteWatch* finite = nullptr;  // watched values are told here; null: nothing is watched
  bool keep_values = false;
  std::vector<RolledLayers>* rolled = nullptr;  // equal layers become loops, told here; null: none
};
GraphPasses compile_passes(const GraphOptions& options);

}  // namespace tpu::compiler
