// What JAX calls back for, such as custom_partitioning.
#pragma once

#include "pjrt_abi.h"

namespace tpu::pjrt {

/// Has JAX register its callbacks with `api` where this library is JAX's own backend `tpu`
/// (TPU_LIBRARY_PATH). Nothing in a process without JAX. Programs that need a callback which is not
/// registered are refused when they are compiled.
void ask_jax_for_callbacks(const PJRT_Api* api);

}  // namespace tpu::pjrt
