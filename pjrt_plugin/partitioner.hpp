// Custom calls that frameworks partition themselves (jax.experimental.custom_partitioning).
#pragma once

#include "compiled_program.hpp"

namespace tpu::pjrt {

/// Asks whoever the framework has registered for the target of the call; throws compiler::Error
/// with what they say. Empty: nobody is registered.
compiler::FrameworkPartitioner framework_partitioner();

}  // namespace tpu::pjrt
