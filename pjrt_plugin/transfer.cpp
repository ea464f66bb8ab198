// Copies between host and cores, and between cores.
#include <algorithm>
#include <cstring>

#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "host_calls.hpp"

namespace tpu::pjrt {
namespace {

// All that strides reach from `data`, which is element [0,0,..].
driver::HostView strided_view(const std::byte* data, driver::DType dtype, driver::Shape shape,
                              std::vector<int64_t> strides) {
  int64_t first = 0;
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t reach = (shape[d] - 1) * strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const auto bytes = static_cast<size_t>(last - first) + driver::dtype_bytes(dtype);
  return {dtype,
          std::move(shape),
          {data + first, bytes},
          std::move(strides),
          static_cast<uint64_t>(-first)};
}

driver::HostView view_of(const PJRT_Client_BufferFromHostBuffer_Args& args) {
  const driver::DType dtype = dtype_of(args.type);
  driver::Shape shape(args.dims, args.dims + args.num_dims);
  const uint64_t bytes = driver::byte_count(dtype, shape);
  const auto* data = static_cast<const std::byte*>(args.data);
  if (bytes > 0 && data == nullptr) {
    throw_invalid("data is null");
  }
  if (bytes == 0 || args.num_byte_strides == 0) {
    return {dtype, std::move(shape), {data, bytes}};
  }
  if (args.num_byte_strides != args.num_dims) {
    throw_invalid("as many byte_strides as dims are needed, or none");
  }
  return strided_view(data, dtype, std::move(shape),
                      {args.byte_strides, args.byte_strides + args.num_byte_strides});
}

PJRT_Buffer* copy_to(const PJRT_Buffer* source, PJRT_Device& target) {
  const driver::Board& board = target.client->process->board();
  const driver::Buffer& from = live_buffer(source, "buffer");
  return new_buffer(target, source->type, board.copy(from, target.id));
}

}  // namespace

void need_row_major(const PJRT_Buffer_MemoryLayout* layout, size_t rank) {
  if (layout == nullptr) {
    return;
  }
  bool row_major = layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
                   layout->tiled.num_tiles == 0 && layout->tiled.minor_to_major_size == rank;
  for (size_t i = 0; row_major && i < rank; ++i) {
    row_major = layout->tiled.minor_to_major[i] == static_cast<int64_t>(rank - 1 - i);
  }
  if (!row_major) {
    throw_unimplemented("a layout that is not row-major without tiles");
  }
}

// The bytes are copied before this returns, whatever the semantics allow.
void call(PJRT_Client_BufferFromHostBuffer_Args& args) {
  const PJRT_Client& client = need(args.client, "client");
  PJRT_Device& device = place_of(args.memory, args.device);
  need_row_major(args.device_layout, args.num_dims);
  const driver::HostView view = view_of(args);
  args.buffer = new_buffer(device, args.type, client.process->board().put(device.id, view));
  args.done_with_host_buffer = new PJRT_Event;
}

void call(PJRT_Client_CreateUninitializedBuffer_Args& args) {
  const PJRT_Client& client = need(args.client, "client");
  PJRT_Device& device = place_of(args.memory, args.device);
  need_row_major(args.shape_layout, args.shape_num_dims);
  args.buffer =
      new_buffer(device, args.shape_element_type,
                 client.process->board().zeros(
                     device.id, dtype_of(args.shape_element_type),
                     driver::Shape(args.shape_dims, args.shape_dims + args.shape_num_dims)));
}

void call(PJRT_Buffer_ToHostBuffer_Args& args) {
  const driver::Buffer& buffer = live_buffer(args.src, "src");
  need_row_major(args.host_layout, buffer.shape().size());
  if (args.dst == nullptr) {
    args.dst_size = buffer.bytes();
    args.event = nullptr;
    return;
  }
  if (args.dst_size < buffer.bytes()) {
    throw_invalid("dst_size is " + std::to_string(args.dst_size) + ", the array has " +
                  std::to_string(buffer.bytes()) + " bytes");
  }
  refuse_in_host_call();
  args.event = new PJRT_Event{buffer.read({static_cast<std::byte*>(args.dst), buffer.bytes()})};
}

void call(PJRT_Buffer_CopyRawToHost_Args& args) {
  const driver::Buffer& buffer = live_buffer(args.buffer, "buffer");
  const uint64_t size = buffer.bytes();
  if (args.offset < 0 || args.transfer_size < 0 || static_cast<uint64_t>(args.offset) > size ||
      static_cast<uint64_t>(args.transfer_size) > size - static_cast<uint64_t>(args.offset)) {
    throw_invalid("offset and transfer_size leave the array of " + std::to_string(size) + " bytes");
  }
  if (args.dst == nullptr && args.transfer_size > 0) {
    throw_invalid("dst is null");
  }
  refuse_in_host_call();
  args.event = new PJRT_Event{buffer.read_part(
      static_cast<uint64_t>(args.offset),
      {static_cast<std::byte*>(args.dst), static_cast<size_t>(args.transfer_size)})};
}

void call(PJRT_Buffer_CopyToDevice_Args& args) {
  args.dst_buffer = copy_to(args.buffer, need(args.dst_device, "dst_device"));
}

void call(PJRT_Buffer_CopyToMemory_Args& args) {
  args.dst_buffer = copy_to(args.buffer, *need(args.dst_memory, "dst_memory").device);
}

}  // namespace tpu::pjrt
