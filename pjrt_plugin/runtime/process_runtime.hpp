// The runtime that all clients of this process share: with the board in this process, or, where
// several processes share it, in another one.
#pragma once

#include "runtime/runtime.hpp"

namespace tpu::pjrt {

class JobStore;

/// Opens the board at the first call. Throws driver::Error; a call that failed can be repeated.
/// `store`: where several processes agree where to meet; null: their variables say it.
const Runtime& process_runtime(const JobStore* store = nullptr);

/// With the board in this process, whatever others there are, who are named by `owner`.
const Runtime& own_runtime(OwnerText owner = {});

/// Null before the first of these calls.
const Runtime* open_runtime();

}  // namespace tpu::pjrt
