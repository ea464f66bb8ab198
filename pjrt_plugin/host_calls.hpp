// Who answers the host calls of a launch: the caller's callbacks, by device and channel.
#pragma once

#include "pjrt_abi.h"
#include "tpu/executable.hpp"

namespace tpu::pjrt {

/// Empty without callbacks. The lists are copied; what they point to lives until the launch is
/// over.
driver::HostCallHandler host_call_handler(const PJRT_ExecuteOptions* options, size_t devices);

/// Throws FailedPrecondition in a callback of the caller, on its thread: JAX would wait for the
/// board, and it for the callback.
void refuse_in_host_call();

}  // namespace tpu::pjrt
