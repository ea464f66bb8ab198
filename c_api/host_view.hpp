// Arrays of the caller as the driver's views.
#pragma once

#include "handles.hpp"

namespace tpu::c_api {

// Shares the caller's memory. Throws driver::Error (InvalidArgument) for what cannot be an array.
driver::HostView view_of(const tpu_host_array& host);

}  // namespace tpu::c_api
