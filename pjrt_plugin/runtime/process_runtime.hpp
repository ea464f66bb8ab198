// The runtime that all clients of this process share.
#pragma once

#include "runtime/runtime.hpp"

namespace tpu::pjrt {

/// Opens the board at the first call. Throws driver::Error; a call that failed can be repeated.
const Runtime& process_runtime();

/// Null before the first process_runtime().
const Runtime* open_runtime();

}  // namespace tpu::pjrt
