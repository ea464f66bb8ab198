// Kernels of ops that move data, made by the fuser of the region that holds the op.
#pragma once

#include "kernel/place_control.hpp"

namespace tpu::compiler {

// Operands and results lie dense in buffers.
void place_packed(const Op& op, KernelClass kind, RegionFuser& fuser);

// Reads the operand through its views as long as one move can follow them in long runs. An
// operand without elements is not read; neither is a constant padding value.
void place_pad(const Op& op, RegionFuser& fuser);

}  // namespace tpu::compiler
