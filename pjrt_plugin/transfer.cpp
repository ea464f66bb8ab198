// Copies between host and cores, and between cores.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "buffers.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "host_calls.hpp"
#include "runtime/host_array.hpp"

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
    throw_invalid("num_byte_strides must be num_dims or 0");
  }
  return strided_view(data, dtype, std::move(shape),
                      {args.byte_strides, args.byte_strides + args.num_byte_strides});
}

// The view of the same array with its dimensions in another order, major first as they shall lie.
void turn(driver::HostView& view, const std::vector<int64_t>& minor_to_major) {
  const driver::HostView old = view;
  std::vector<int64_t> strides = old.strides;
  for (auto step = static_cast<int64_t>(driver::dtype_bytes(old.dtype));
       strides.size() < old.shape.size();) {
    strides.insert(strides.begin(), step);
    step *= old.shape[old.shape.size() - strides.size()];
  }
  view.strides.resize(strides.size());
  for (size_t k = 0; k < minor_to_major.size(); ++k) {
    const auto dim = static_cast<size_t>(minor_to_major[minor_to_major.size() - 1 - k]);
    view.shape[k] = old.shape[dim];
    view.strides[k] = strides[dim];
  }
}

PJRT_Buffer* copy_to(const PJRT_Buffer* source, PJRT_Memory& target) {
  const DeviceArrayPtr& from = live_array(source, "buffer");
  return new_buffer(target, source->type, copy_to_memory(*from, target), source->form);
}

std::vector<int64_t> dense_strides(const driver::Shape& dims,
                                   const std::vector<int64_t>& minor_to_major, size_t bytes) {
  std::vector<int64_t> strides(dims.size());
  auto step = static_cast<int64_t>(bytes);
  for (const int64_t dim : minor_to_major) {
    strides[static_cast<size_t>(dim)] = step;
    step *= dims[static_cast<size_t>(dim)];
  }
  return strides;
}

// Minor to major as it follows from strides; dimensions of one element lie anywhere.
std::vector<int64_t> order_of_strides(const driver::Shape& dims, const int64_t* strides,
                                      size_t bytes) {
  std::vector<int64_t> order(dims.size());
  std::iota(order.rbegin(), order.rend(), 0);
  const auto stride = [&](int64_t dim) { return strides[static_cast<size_t>(dim)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return stride(a) < stride(b); });
  const std::vector<int64_t> dense = dense_strides(dims, order, bytes);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] > 1 && dense[d] != strides[d]) {
      throw_unimplemented("a layout whose strides leave gaps");
    }
  }
  return order;
}

// `from`, which lies dense by `from_order`, to `to` by `to_order`.
void reorder(const driver::Shape& dims, size_t bytes, const std::byte* from,
             const std::vector<int64_t>& from_order, std::byte* to,
             const std::vector<int64_t>& to_order) {
  const std::vector<int64_t> source = dense_strides(dims, from_order, bytes);
  uint64_t left = 1;
  for (const int64_t n : dims) {
    left *= static_cast<uint64_t>(n);
  }
  std::vector<int64_t> at(dims.size());
  int64_t offset = 0;
  for (; left > 0; --left, to += bytes) {
    std::memcpy(to, from + offset, bytes);
    for (const int64_t dim : to_order) {
      const auto d = static_cast<size_t>(dim);
      offset += source[d];
      if (++at[d] < dims[d]) {
        break;
      }
      offset -= source[d] * dims[d];
      at[d] = 0;
    }
  }
}

// Waits: the host reorders what has arrived.
PJRT_Event* read_reordered(const DeviceArray& array, const ArrayForm& form,
                           const std::vector<int64_t>& order, std::byte* to) {
  std::vector<std::byte> bytes(array.bytes());
  array.read(0, bytes).wait();
  reorder(form.dims, driver::dtype_bytes(array.dtype()), bytes.data(), form.minor_to_major, to,
          order);
  return new PJRT_Event;
}

}  // namespace

bool is_row_major(const std::vector<int64_t>& minor_to_major) {
  return std::is_sorted(minor_to_major.rbegin(), minor_to_major.rend());
}

std::vector<int64_t> minor_to_major(const PJRT_Buffer_MemoryLayout* layout,
                                    const driver::Shape& dims, size_t element_bytes) {
  std::vector<int64_t> order(dims.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (layout == nullptr) {
    return order;
  }
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    if (layout->strides.num_byte_strides != dims.size()) {
      throw_invalid("layout: expected one stride for each dimension");
    }
    return order_of_strides(dims, layout->strides.byte_strides, element_bytes);
  }
  if (layout->tiled.num_tiles != 0) {
    throw_unimplemented("a layout with tiles; arrays are dense in the board's memory");
  }
  const std::vector<int64_t> asked(
      layout->tiled.minor_to_major,
      layout->tiled.minor_to_major + layout->tiled.minor_to_major_size);
  if (!std::is_permutation(asked.begin(), asked.end(), order.begin(), order.end())) {
    throw_invalid("layout: expected minor_to_major with each of " + std::to_string(dims.size()) +
                  " dimensions once");
  }
  return asked;
}

void need_row_major(const PJRT_Buffer_MemoryLayout* layout, const driver::Shape& dims,
                    size_t element_bytes) {
  if (!is_row_major(minor_to_major(layout, dims, element_bytes))) {
    throw_unimplemented("a layout that is not row-major, for this way of making a buffer");
  }
}

// The bytes are copied before this returns, whatever the semantics allow.
void call(PJRT_Client_BufferFromHostBuffer_Args& args) {
  const PJRT_Client& client = need(args.client, "client");
  PJRT_Memory& memory = place_of(args.memory, args.device);
  driver::HostView view = view_of(args);
  const size_t bytes = driver::dtype_bytes(view.dtype);
  std::vector<int64_t> order = minor_to_major(args.device_layout, view.shape, bytes);
  std::shared_ptr<const ArrayForm> form;
  if (!is_row_major(order)) {
    form = std::make_shared<ArrayForm>(ArrayForm{view.shape, order});
    turn(view, order);
  }
  const int device = memory.device->id;
  DeviceArrayPtr array = is_host(memory) ? HostArray::copy_of(*client.runtime, device, view)
                                         : client.runtime->put(device, view);
  args.buffer = new_buffer(memory, args.type, std::move(array), std::move(form));
  args.done_with_host_buffer = new PJRT_Event;
}

void call(PJRT_Client_CreateUninitializedBuffer_Args& args) {
  const PJRT_Client& client = need(args.client, "client");
  PJRT_Memory& memory = place_of(args.memory, args.device);
  const driver::Shape shape(args.shape_dims, args.shape_dims + args.shape_num_dims);
  const driver::DType dtype = dtype_of(args.shape_element_type);
  need_row_major(args.shape_layout, shape, driver::dtype_bytes(dtype));
  const int device = memory.device->id;
  DeviceArrayPtr array =
      is_host(memory)
          ? std::make_shared<const HostArray>(
                *client.runtime, device, dtype, shape,
                std::make_shared<std::vector<std::byte>>(driver::byte_count(dtype, shape)))
          : client.runtime->zeros(device, dtype, shape);
  args.buffer = new_buffer(memory, args.shape_element_type, std::move(array));
}

void call(PJRT_Buffer_ToHostBuffer_Args& args) {
  const DeviceArray& array = *live_array(args.src, "src");
  const std::vector<int64_t> order =
      minor_to_major(args.host_layout, dims_of(*args.src), driver::dtype_bytes(array.dtype()));
  const ArrayForm* form = args.src->form.get();
  if (args.dst == nullptr) {
    args.dst_size = array.bytes();
    args.event = nullptr;
    return;
  }
  if (args.dst_size < array.bytes()) {
    throw_invalid("dst_size is " + std::to_string(args.dst_size) + ", the array has " +
                  std::to_string(array.bytes()) + " bytes");
  }
  refuse_in_host_call();
  auto* dst = static_cast<std::byte*>(args.dst);
  if (form == nullptr ? is_row_major(order) : order == form->minor_to_major) {
    args.event = new PJRT_Event{array.read(0, {dst, array.bytes()})};
    return;
  }
  const ArrayForm row_major{dims_of(*args.src), minor_to_major(nullptr, dims_of(*args.src), 1)};
  args.event = read_reordered(array, form == nullptr ? row_major : *form, order, dst);
}

void call(PJRT_Buffer_CopyRawToHost_Args& args) {
  const DeviceArray& array = *live_array(args.buffer, "buffer");
  const uint64_t size = array.bytes();
  if (args.offset < 0 || args.transfer_size < 0 || static_cast<uint64_t>(args.offset) > size ||
      static_cast<uint64_t>(args.transfer_size) > size - static_cast<uint64_t>(args.offset)) {
    throw_invalid("offset and transfer_size exceed the array of " + std::to_string(size) +
                  " bytes");
  }
  if (args.dst == nullptr && args.transfer_size > 0) {
    throw_invalid("dst is null");
  }
  refuse_in_host_call();
  args.event = new PJRT_Event{
      array.read(static_cast<uint64_t>(args.offset),
                 {static_cast<std::byte*>(args.dst), static_cast<size_t>(args.transfer_size)})};
}

void call(PJRT_Buffer_CopyToDevice_Args& args) {
  args.dst_buffer = copy_to(args.buffer, place_of(nullptr, args.dst_device));
}

void call(PJRT_Buffer_CopyToMemory_Args& args) {
  args.dst_buffer = copy_to(args.buffer, need(args.dst_memory, "dst_memory"));
}

}  // namespace tpu::pjrt
