// Buffers whose contents come later: piece by piece from the host, or never (errors). Pieces are
// copied to memory of our own, and the upload starts with the last of them.
#include <cstring>
#include <utility>

#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "runtime/host_array.hpp"

struct PJRT_AsyncHostToDeviceTransferManager {
  struct Part {
    PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
    tpu::pjrt::DeviceArrayPtr array;
    tpu::driver::HostEvent filled;  // empty: set, or failed
    std::shared_ptr<std::vector<std::byte>> bytes;
    size_t size = 0;  // of `bytes`
    bool retrieved = false;
  };
  std::shared_ptr<PJRT_Client> client;
  PJRT_Memory* memory = nullptr;
  tpu::base::Mutex mutex;
  std::vector<Part> parts TPU_GUARDED_BY(mutex);
};

namespace tpu::pjrt {
namespace {

using Manager = PJRT_AsyncHostToDeviceTransferManager;
using Part = Manager::Part;

Part part_of(const PJRT_Memory& memory, PJRT_Buffer_Type type, const int64_t* dims, size_t rank) {
  const PJRT_Device& device = *memory.device;
  const Runtime& runtime = *device.client->runtime;
  const driver::DType dtype = dtype_of(type);
  const driver::Shape shape(dims, dims + rank);
  auto bytes = std::make_shared<std::vector<std::byte>>(driver::byte_count(dtype, shape));
  const driver::HostEvent filled = runtime.make_event();
  DeviceArrayPtr array = is_host(memory)
                             ? std::make_shared<const HostArray>(runtime, device.id, dtype, shape,
                                                                 bytes, filled.event())
                             : runtime.put(device.id, dtype, shape, bytes, filled.event());
  const size_t size = bytes->size();
  return {type, std::move(array), filled, std::move(bytes), size, false};
}

Part& part_at(Manager& manager, int index) TPU_REQUIRES(manager.mutex) {
  if (index < 0 || static_cast<size_t>(index) >= manager.parts.size()) {
    throw_invalid("buffer_index " + std::to_string(index) + ": expected an index below " +
                  std::to_string(manager.parts.size()));
  }
  return manager.parts[static_cast<size_t>(index)];
}

// Part `index`, which is to get more bytes or an error.
Part& open_part(Manager& manager, int index) TPU_REQUIRES(manager.mutex) {
  Part& part = part_at(manager, index);
  if (!part.filled.valid()) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "buffer " + std::to_string(index) +
                            " accepts no more bytes: it had its last transfer or an error");
  }
  return part;
}

// What is to be told to waiting work: `part` itself is done with.
driver::HostEvent close_part(Part& part) {
  part.bytes.reset();
  return std::exchange(part.filled, driver::HostEvent());
}

PJRT_Event* fill(Manager& manager, int index, const void* data, int64_t offset, int64_t size,
                 bool last) {
  driver::HostEvent filled;
  {
    const base::MutexLock lock(manager.mutex);
    Part& part = open_part(manager, index);
    const auto room = static_cast<int64_t>(part.bytes->size());
    if (offset < 0 || size < 0 || offset > room || size > room - offset) {
      throw_invalid("offset and transfer_size exceed the array of " + std::to_string(room) +
                    " bytes");
    }
    if (size > 0) {
      std::memcpy(part.bytes->data() + offset, &need(static_cast<const std::byte*>(data), "data"),
                  static_cast<size_t>(size));
    }
    if (last) {
      filled = close_part(part);
    }
  }
  if (filled.valid()) {
    filled.set();
  }
  return new PJRT_Event;
}

}  // namespace

void call(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args) {
  auto manager = std::make_unique<Manager>();
  manager->client = need(args.client, "client").shared_from_this();
  manager->memory = &need(args.memory, "memory");
  const base::MutexLock lock(manager->mutex);
  for (size_t i = 0; i < args.num_shape_specs; ++i) {
    const PJRT_ShapeSpec& spec = args.shape_specs[i];
    if (i < args.num_device_layouts) {
      need_row_major(args.device_layouts[i], driver::Shape(spec.dims, spec.dims + spec.num_dims),
                     driver::dtype_bytes(dtype_of(spec.element_type)));
    }
    manager->parts.push_back(
        part_of(*manager->memory, spec.element_type, spec.dims, spec.num_dims));
  }
  args.transfer_manager = manager.release();
}

// What is not filled fails with Cancelled.
void call(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args) {
  delete args.transfer_manager;
}

void call(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args) {
  args.done_with_h2d_transfer =
      fill(need(args.transfer_manager, "transfer_manager"), args.buffer_index, args.data,
           args.offset, args.transfer_size, args.is_last_transfer);
}

void call(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args& args) {
  Manager& manager = need(args.transfer_manager, "transfer_manager");
  const driver::Shape shape(args.shape_dims, args.shape_dims + args.shape_num_dims);
  const driver::DType dtype = dtype_of(args.shape_element_type);
  need_row_major(args.shape_layout, shape, driver::dtype_bytes(dtype));
  const uint64_t bytes = driver::byte_count(dtype, shape);
  args.done_with_h2d_transfer =
      fill(manager, args.buffer_index, args.data, 0, static_cast<int64_t>(bytes), true);
}

void call(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args) {
  Manager& manager = need(args.transfer_manager, "transfer_manager");
  const base::MutexLock lock(manager.mutex);
  Part& part = part_at(manager, args.buffer_index);
  if (std::exchange(part.retrieved, true)) {
    throw driver::Error(driver::ErrorCode::kFailedPrecondition,
                        "buffer " + std::to_string(args.buffer_index) + " was retrieved already");
  }
  args.buffer_out = new_buffer(*manager.memory, part.type, std::move(part.array));
}

void call(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args) {
  args.device_out = need(args.transfer_manager, "transfer_manager").memory->device;
}

void call(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args) {
  Manager& manager = need(args.transfer_manager, "transfer_manager");
  const base::MutexLock lock(manager.mutex);
  args.buffer_count = manager.parts.size();
}

void call(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args) {
  Manager& manager = need(args.transfer_manager, "transfer_manager");
  const base::MutexLock lock(manager.mutex);
  args.buffer_size = part_at(manager, args.buffer_index).size;
}

void call(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args) {
  Manager& manager = need(args.transfer_manager, "transfer_manager");
  driver::HostEvent filled;
  {
    const base::MutexLock lock(manager.mutex);
    filled = close_part(open_part(manager, args.buffer_index));
  }
  filled.fail(error_of(args.error_code, args.error_message, args.error_message_size));
}

// Notes of a framework for its own tools.
void call(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args& args) {
  need(args.transfer_manager, "transfer_manager");
}

void call(PJRT_Client_CreateErrorBuffer_Args& args) {
  need(args.client, "client");
  need_row_major(args.shape_layout,
                 driver::Shape(args.shape_dims, args.shape_dims + args.shape_num_dims),
                 driver::dtype_bytes(dtype_of(args.shape_element_type)));
  PJRT_Memory& memory = need(args.memory, "memory");
  Part part = part_of(memory, args.shape_element_type, args.shape_dims, args.shape_num_dims);
  part.filled.fail(error_of(args.error_code, args.error_message, args.error_message_size));
  args.buffer = new_buffer(memory, part.type, std::move(part.array));
}

}  // namespace tpu::pjrt
