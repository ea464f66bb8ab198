// The type rule of each op, for the verifier and for passes that make ops of what a program says.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Counts and attribute kinds are checked already. Throws compiler::Error.
void verify_types(const Op& op, const Module& module);

}  // namespace tpu::compiler
