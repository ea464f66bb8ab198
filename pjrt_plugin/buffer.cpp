// Buffers: what they are, deleting them. Getters take no locks.
#include <array>
#include <utility>

#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "runtime/host_array.hpp"

namespace tpu::pjrt {
namespace {

using driver::DType;

// What programs compute with.
constexpr std::array kTypes = {
    std::pair{PJRT_Buffer_Type_F32, DType::kF32}, std::pair{PJRT_Buffer_Type_BF16, DType::kBf16},
    std::pair{PJRT_Buffer_Type_S32, DType::kI32}, std::pair{PJRT_Buffer_Type_U32, DType::kU32},
    std::pair{PJRT_Buffer_Type_S8, DType::kI8},   std::pair{PJRT_Buffer_Type_U8, DType::kU8},
    std::pair{PJRT_Buffer_Type_PRED, DType::kI1}, std::pair{PJRT_Buffer_Type_S16, DType::kI16},
    std::pair{PJRT_Buffer_Type_U16, DType::kU16}, std::pair{PJRT_Buffer_Type_S64, DType::kI64},
    std::pair{PJRT_Buffer_Type_U64, DType::kU64}, std::pair{PJRT_Buffer_Type_C64, DType::kC64},
    std::pair{PJRT_Buffer_Type_F64, DType::kF64}};

// What the board only moves: by the bytes that an element has in an array of the host, where the
// smallest types take a byte each.
constexpr std::array kMovedTypes = {std::pair{PJRT_Buffer_Type_F16, DType::kBytes2},
                                    std::pair{PJRT_Buffer_Type_C128, DType::kBytes16},
                                    std::pair{PJRT_Buffer_Type_F8E5M2, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E4M3FN, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E4M3B11FNUZ, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E5M2FNUZ, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E4M3FNUZ, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E4M3, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E3M4, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F8E8M0FNU, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F4E2M1FN, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F6E2M3FN, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_F6E3M2FN, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_S4, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_U4, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_S2, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_U2, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_S1, DType::kBytes1},
                                    std::pair{PJRT_Buffer_Type_U1, DType::kBytes1}};

}  // namespace

DType dtype_of(PJRT_Buffer_Type type) {
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == type) {
      return ours;
    }
  }
  for (const auto& [theirs, ours] : kMovedTypes) {
    if (theirs == type) {
      return ours;
    }
  }
  throw_invalid("element type " + std::to_string(type) + ": expected a type of arrays");
}

PJRT_Buffer_Type buffer_type(exe::Elem elem) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == static_cast<DType>(elem)) {  // order and meaning are the same (tpu/types.hpp)
      return theirs;
    }
  }
  return PJRT_Buffer_Type_INVALID;
}

const char* memory_kind_name(exe::MemoryKind kind) { return exe::EnumNameMemoryKind(kind); }

PJRT_Memory& memory_of(const PJRT_Device& device, exe::MemoryKind kind) {
  return *device.memories.at(static_cast<size_t>(kind));
}

DeviceArrayPtr copy_to_memory(const DeviceArray& source, const PJRT_Memory& memory) {
  const Runtime& runtime = *memory.device->client->runtime;
  if (is_host(memory)) {
    return HostArray::copy_of(runtime, memory.device->id, source);
  }
  const auto* host = dynamic_cast<const HostArray*>(&source);
  return host != nullptr ? host->to_device(memory.device->id)
                         : runtime.copy(source, memory.device->id);
}

PJRT_Buffer* new_buffer(PJRT_Memory& memory, PJRT_Buffer_Type type, DeviceArrayPtr array,
                        std::shared_ptr<const ArrayForm> form) {
  auto made = std::make_unique<PJRT_Buffer>();
  made->client = memory.device->client->shared_from_this();
  made->device = memory.device;
  made->memory = &memory;
  made->type = type;
  made->array = std::move(array);
  made->form = std::move(form);
  return made.release();
}

const driver::Shape& dims_of(const PJRT_Buffer& buffer) {
  return buffer.form == nullptr ? buffer.array->shape() : buffer.form->dims;
}

const DeviceArrayPtr& live_array(const PJRT_Buffer* buffer, const std::string& what) {
  if (need(buffer, what.c_str()).deleted) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition, what + " was deleted or donated");
  }
  return buffer->array;
}

PJRT_Memory& place_of(PJRT_Memory* memory, PJRT_Device* device) {
  return memory != nullptr
             ? *memory
             : memory_of(need(device, "device (no memory is given)"), exe::MemoryKind::device);
}

void call(PJRT_Buffer_Destroy_Args& args) { delete args.buffer; }

void call(PJRT_Buffer_ElementType_Args& args) { args.type = need(args.buffer, "buffer").type; }

void call(PJRT_Buffer_Dimensions_Args& args) {
  const driver::Shape& shape = dims_of(need(args.buffer, "buffer"));
  args.dims = shape.data();
  args.num_dims = shape.size();
}

void call(PJRT_Buffer_UnpaddedDimensions_Args& args) {
  const driver::Shape& shape = dims_of(need(args.buffer, "buffer"));
  args.unpadded_dims = shape.data();
  args.num_dims = shape.size();
}

void call(PJRT_Buffer_DynamicDimensionIndices_Args& args) {
  need(args.buffer, "buffer");
  args.dynamic_dim_indices = nullptr;
  args.num_dynamic_dims = 0;
}

void call(PJRT_Buffer_GetMemoryLayout_Args& args) {
  static const std::array<int64_t, exe::kMaxRank> descending = [] {
    std::array<int64_t, exe::kMaxRank> order{};
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<int64_t>(order.size() - 1 - i);
    }
    return order;
  }();
  const PJRT_Buffer& buffer = need(args.buffer, "buffer");
  const size_t rank = dims_of(buffer).size();
  if (rank > descending.size()) {
    throw_unimplemented("layouts of more than 64 dimensions");
  }
  args.layout = {};
  args.layout.struct_size = kPjrtStructSize<PJRT_Buffer_MemoryLayout>;
  args.layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args.layout.tiled.struct_size = kPjrtStructSize<PJRT_Buffer_MemoryLayout_Tiled>;
  args.layout.tiled.minor_to_major = buffer.form == nullptr
                                         ? descending.data() + (descending.size() - rank)
                                         : buffer.form->minor_to_major.data();
  args.layout.tiled.minor_to_major_size = rank;
}

void call(PJRT_Buffer_OnDeviceSizeInBytes_Args& args) {
  args.on_device_size_in_bytes = need(args.buffer, "buffer").array->bytes();
}

void call(PJRT_Buffer_Device_Args& args) { args.device = need(args.buffer, "buffer").device; }

void call(PJRT_Buffer_Memory_Args& args) { args.memory = need(args.buffer, "buffer").memory; }

void call(PJRT_Buffer_Delete_Args& args) {
  PJRT_Buffer& buffer = need(args.buffer, "buffer");
  if (!buffer.deleted.exchange(true)) {
    buffer.array->discard();
  }
}

void call(PJRT_Buffer_IsDeleted_Args& args) {
  args.is_deleted = need(args.buffer, "buffer").deleted;
}

// Host code may not look into HBM.
void call(PJRT_Buffer_IsOnCpu_Args& args) {
  need(args.buffer, "buffer");
  args.is_on_cpu = false;
}

void call(PJRT_Buffer_ReadyEvent_Args& args) {
  args.event = new PJRT_Event{live_array(args.buffer, "buffer")->ready(), true};
}

// An address in HBM, with the device above it: it tells arrays apart, and nothing is read by it.
// Of an array in the host's memory: where it is.
void call(PJRT_Buffer_UnsafePointer_Args& args) {
  constexpr int kDeviceShift = 40;
  const DeviceArray& array = *live_array(args.buffer, "buffer");
  if (is_host(*args.buffer->memory)) {
    args.buffer_pointer = static_cast<uintptr_t>(array.address());
    return;
  }
  args.buffer_pointer =
      (static_cast<uintptr_t>(array.device()) + 1) << kDeviceShift | array.address();
}

void call(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& /*args*/) {
  throw_unimplemented("memory of the board has no address on the host");
}

void call(PJRT_Buffer_IncreaseExternalReferenceCount_Args& /*args*/) {
  throw_unimplemented("memory of the board has no address on the host");
}

void call(PJRT_Buffer_DecreaseExternalReferenceCount_Args& /*args*/) {
  throw_unimplemented("memory of the board has no address on the host");
}

}  // namespace tpu::pjrt
