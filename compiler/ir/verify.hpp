// Verifier of the graph: structure, then the type rule of every op. Runs after the import and after
// every pass. A failure is a compiler::Error that names the op and its source line.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

void verify(const Module& module);

}  // namespace tpu::compiler
