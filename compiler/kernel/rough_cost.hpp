// What a kernel costs, roughly: the larger one of its arithmetic and of its bytes in HBM. For
// passes that choose an order, which is right at any cost.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernels.hpp"
#include "tpu/spec/board_params.hpp"

namespace tpu::compiler {

int64_t bytes_of_all(const std::vector<const Value*>& values);

// Core cycles, without the kernels of its regions.
double rough_cycles(const Kernel& k, const spec::BoardParams& board);

}  // namespace tpu::compiler
