// The runtime that all clients of this process share: with the board in this process, or, where
// several processes share it, in another one.
#pragma once

#include "runtime/runtime.hpp"

namespace tpu::pjrt {

/// Opens the board at the first call. Throws driver::Error; a call that failed can be repeated.
const Runtime& process_runtime();

/// With the board in this process, whatever others there are.
const Runtime& own_runtime();

/// Null before the first of these calls.
const Runtime* open_runtime();

}  // namespace tpu::pjrt
