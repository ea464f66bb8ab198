// What jax.distributed.initialize() was told in this process, when it has JAX.
#pragma once

#include <optional>

#include "processes/place.hpp"

namespace tpu::pjrt {

std::optional<ToldProcess> jax_process();

}  // namespace tpu::pjrt
