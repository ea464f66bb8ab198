// The order in which the instructions of a computation become ops. A module lists them in any order
// of dependence, and TensorFlow's has weight gradients last, where nothing hides their sums:
//
//   dx = dot(dy, w); .. all else that follows from dx; dw = dot(x, dy); s = all-reduce(dw)
//   =>   dw = dot(x, dy); dx = dot(dy, w); ..; s = all-reduce(dw)
//
// An all_reduce starts when its operand is there, wherever it is itself (kernel/buckets.hpp). Where
// the cores divide an update behind it, it waits for the update's other operands, too: scalars that
// depend on arguments alone, such as a learning rate of this step, come first.
#pragma once

#include <cstdint>
#include <vector>

#include "import/hlo/hlo_module.hpp"

namespace tpu::compiler::hlo {

/// Positions of all instructions. Without an all-reduce they are in the order of the computation.
std::vector<uint32_t> order_of(const Computation& computation);

}  // namespace tpu::compiler::hlo
