// What makes buffers: element types of both sides, and handles.
#pragma once

#include <string>
#include <vector>

#include "objects.hpp"

namespace tpu::pjrt {

/// Types that programs do not compute with are so many bytes. Throws driver::Error
/// (InvalidArgument) for what is no element type.
driver::DType dtype_of(PJRT_Buffer_Type type);
PJRT_Buffer_Type buffer_type(exe::Elem elem);

/// `array` is in `memory`.
PJRT_Buffer* new_buffer(PJRT_Memory& memory, PJRT_Buffer_Type type, DeviceArrayPtr array,
                        std::shared_ptr<const ArrayForm> form = nullptr);

/// The memory of the kind that belongs to the device.
PJRT_Memory& memory_of(const PJRT_Device& device, exe::MemoryKind kind);
/// A copy of `source` in `memory`.
DeviceArrayPtr copy_to_memory(const DeviceArray& source, const PJRT_Memory& memory);
/// "device", "pinned_host" or "unpinned_host".
const char* memory_kind_name(exe::MemoryKind kind);
inline bool is_host(const PJRT_Memory& memory) { return memory.kind != exe::MemoryKind::device; }

/// Dimensions of an array as the framework sees it.
const driver::Shape& dims_of(const PJRT_Buffer& buffer);

/// The array of a handle that can be used. Throws driver::Error: null, deleted or donated.
const DeviceArrayPtr& live_array(const PJRT_Buffer* buffer, const std::string& what);

/// The order of dimensions that a dense layout asks for, from minor to major; row-major where it is
/// null. Throws driver::Error: Unimplemented for tiles and for strides that leave gaps,
/// InvalidArgument for an order that does not name each dimension once.
std::vector<int64_t> minor_to_major(const PJRT_Buffer_MemoryLayout* layout,
                                    const driver::Shape& dims, size_t element_bytes);
bool is_row_major(const std::vector<int64_t>& minor_to_major);

/// Throws driver::Error (Unimplemented) for any other layout; null: none is asked for.
void need_row_major(const PJRT_Buffer_MemoryLayout* layout, const driver::Shape& dims,
                    size_t element_bytes);

/// `memory`, or the default one of `device` where there is none; one of them must be given.
PJRT_Memory& place_of(PJRT_Memory* memory, PJRT_Device* device);

}  // namespace tpu::pjrt
