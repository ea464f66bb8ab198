// Initial values of state leaves by the rules of docs/training.md, "Initial state".
#pragma once

#include <cstddef>
#include <cstdint>

#include "loop/train_config.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

/// State leaf number `leaf`. Throws InvalidArgument when the rule or its file does not fit `dtype`
/// and `shape`.
driver::HostArray initial_leaf(const Init& init, driver::DType dtype, const driver::Shape& shape,
                               uint64_t seed, size_t leaf);

}  // namespace tpu::training
