// What makes buffers: element types of both sides, and handles.
#pragma once

#include <string>
#include <vector>

#include "objects.hpp"

namespace tpu::pjrt {

/// Throws driver::Error (Unimplemented) for types that the board does not have.
driver::DType dtype_of(PJRT_Buffer_Type type);
PJRT_Buffer_Type buffer_type(driver::DType dtype);
PJRT_Buffer_Type buffer_type(exe::Elem elem);

PJRT_Buffer* new_buffer(PJRT_Device& device, driver::Buffer buffer);

/// The buffer of a handle that can be used. Throws driver::Error: null, deleted or donated.
const driver::Buffer& live_buffer(const PJRT_Buffer* buffer, const std::string& what);

/// The device of `memory`, or `device` where there is none; one of them must be given.
PJRT_Device& place_of(PJRT_Memory* memory, PJRT_Device* device);

}  // namespace tpu::pjrt
