// The type rule of each op. Private to the verifier.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Counts and attribute kinds are checked already. Throws compiler::Error.
void verify_types(const Op& op, const Module& module);

}  // namespace tpu::compiler
