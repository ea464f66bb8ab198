// Kernels of dot_general, made by the fuser of the region that holds the op.
#pragma once

#include "kernel/place_control.hpp"

namespace tpu::compiler {

// Operands are read through their views; transposes behind the dot are written directly.
void place_contraction(const Op& op, RegionFuser& fuser);

}  // namespace tpu::compiler
