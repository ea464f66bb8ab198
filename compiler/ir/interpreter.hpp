// Runs the graph on plain arrays for all cores in lockstep: the oracle of passes and code
// generation. No tiles, no time, no memory limits. Sums of reductions run in ascending order of the
// reduced elements and the initial value is combined last (first, if the body is more than one op);
// sums over cores are a pairwise tree over
// ascending core numbers. Code generation may order sums otherwise, so compare those with a
// tolerance. Not covered (a compiler::Error): convolution, random bits.
#pragma once

#include <vector>

#include "ir/eval.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// args[core][argument], local shapes. Returns [core][result]. Calls must be inlined before.
std::vector<std::vector<Tensor>> interpret(const Module& module,
                                           const std::vector<std::vector<Tensor>>& args,
                                           const EvalOptions& options = {});

// Global arrays to per-core pieces and back, by the shardings of main. A result that is replicated
// must be equal on all cores that hold a copy; otherwise a compiler::Error names it.
std::vector<std::vector<Tensor>> split_arguments(const Module& module,
                                                 const std::vector<Tensor>& global);
std::vector<Tensor> join_results(const Module& module,
                                 const std::vector<std::vector<Tensor>>& per_core);

}  // namespace tpu::compiler
