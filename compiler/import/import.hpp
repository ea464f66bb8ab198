// Public entry of the import: a StableHLO portable artifact, as jax.export writes it, to a verified
// graph.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ir/graph.hpp"

namespace tpu::compiler {

// Reads `artifact` (Exported.mlir_module_serialized). The module is the global graph: whole arrays,
// shardings as attributes. Calls and composites are kept: run the passes `inline` and `partition`
// next. `name`: of the module; empty: its own. Throws compiler::Error
// for damaged files and for anything that is not supported.
Module import_vhlo(std::span<const std::byte> artifact, const std::string& name);

// The same from a file; the module is named after the file.
Module import_vhlo_file(const std::string& path);

}  // namespace tpu::compiler
