// Raw VHLO tables and ops to the graph: one op set without versions, locations attached, and the
// body of jax.shard_map (sdy.manual_computation) as the program of one core. Private to the import.
#pragma once

#include "import/bytecode.hpp"
#include "import/import.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler::frontend {

// The result is not verified. Calls and composites stay; see the pass `inline`.
Module normalise(const bytecode::RawModule& raw, const std::string& name,
                 const ImportOptions& options);

}  // namespace tpu::compiler::frontend
