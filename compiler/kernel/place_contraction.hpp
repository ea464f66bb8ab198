// Kernels of dot_general, formed while the region that holds the op is walked.
#pragma once

#include "kernel/fusion.hpp"

namespace tpu::compiler {

// Operands are read through their views; transposes behind the dot are written directly.
void place_contraction(const Op& op, Fusion& fusion);

}  // namespace tpu::compiler
