// Runs the graph on plain arrays for all cores in lockstep: the oracle of passes and code
// generation. No tiles, no time, no memory limits. Sums of reductions run in ascending order of the
// reduced elements and the initial value is combined last (first, if the body is more than one op);
// sums over cores are a pairwise tree over
// ascending core numbers. Code generation may order sums otherwise, so compare those with a
// tolerance, and convolutions, whose sums are of doubles. Not covered (a compiler::Error): random
// bits, what calls the host.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/eval.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// What an op of main has made on a core. Of an op that is not covered there is no value; of a sum
// of terms, `magnitude` has the sum of their magnitudes, by which orders of adding may differ.
struct MadeValue {
  std::optional<Tensor> value;
  std::optional<Tensor> magnitude;
};
// Sees it before other ops use it, and may change it; where there is none, it says what it is.
// False: the evaluation ends.
using ValueHook = std::function<bool(size_t core, const Value& value, MadeValue& made)>;

// args[core][argument], local shapes. Returns [core][result], nothing when the hook has ended it.
// Calls must be inlined before.
std::vector<std::vector<Tensor>> interpret(const Module& module,
                                           const std::vector<std::vector<Tensor>>& args,
                                           const EvalOptions& options = {},
                                           const ValueHook& hook = {});

// Global arrays, one for each argument (result) of the program, to the values of cores and back, by
// the shardings of main. A result that is replicated
// must be equal on all cores that hold a copy; otherwise a compiler::Error names it.
std::vector<std::vector<Tensor>> split_arguments(const Module& module,
                                                 const std::vector<Tensor>& global);
std::vector<Tensor> join_results(const Module& module,
                                 const std::vector<std::vector<Tensor>>& per_core);

}  // namespace tpu::compiler
