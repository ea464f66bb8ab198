// The graph of one core as StableHLO in MLIR's text, for programs that read it with a library of
// their own (a PJRT client makes HLO of it). Ops are in generic form; locations are kept. What
// StableHLO has no op for is a custom_call: `Qr`, `Eigh`, `LuDecomposition`,
// `ProductOfElementaryHouseholderReflectors`, `mhlo.erf`; multiply_add, which rounds once, is a
// multiply and an add. How whole arrays lie on the cores of a partitioned program, whose own arrays
// are those of a core, is in attributes of the module (mhlo.spmd_parameters_shardings and
// mhlo.spmd_output_sharding), where XLA has it: PyTorch/XLA learns from there what a step gives.
#pragma once

#include <string>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Of a module between the passes `partition` and `legalize`: no global graph, no calls. Throws
// Error for an op that is none of StableHLO.
std::string stablehlo_text(const Module& module);

}  // namespace tpu::compiler
