// Transfers of literals, and the tables of tuples.
#include <memory>

#include "abi/executor.h"
#include "answer.hpp"
#include "errors.hpp"
#include "shapes.hpp"
#include "system.hpp"

namespace tpu::tensorflow {
namespace {

char manager_tag;

// The arrays of a literal beside the buffers of the same shape on the device.
std::vector<Leaf> paired_leaves(const XLA_Literal& literal, const XLA_ShapedBuffer& buffer) {
  std::vector<Leaf> leaves = leaves_of(buffer.on_device_shape);
  if (leaves.size() != literal.count) {
    pjrt::throw_invalid("a transfer of " + std::to_string(literal.count) + " arrays: expected " +
                        std::to_string(leaves.size()) + ", as in the shape on the device");
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    check_row_major(*leaves[i].shape);
    if (const size_t count = behind_layout(buffer.count); leaves[i].node >= count) {
      pjrt::throw_invalid("a transfer of " + std::to_string(count) +
                          " buffers: expected one for each node of the shape");
    }
    if (const uint64_t bytes = payload_bytes(*leaves[i].shape); literal.sizes[i] < bytes) {
      pjrt::throw_invalid("a literal has " + std::to_string(literal.sizes[i]) +
                          " bytes: expected " + std::to_string(bytes));
    }
  }
  return leaves;
}

const SE_DeviceMemoryBase& base_of(const XLA_ShapedBuffer& buffer, const Leaf& leaf) {
  return behind_layout(buffer.bases)[leaf.node];
}

void to_device(Stream& stream, const XLA_Literal& literal, const XLA_ShapedBuffer& buffer) {
  System& system = System::get();
  const std::vector<Leaf> leaves = paired_leaves(literal, buffer);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const XLA_Shape& shape = *leaves[i].shape;
    const std::span bytes(reinterpret_cast<const std::byte*>(literal.buffers[i]),
                          static_cast<size_t>(payload_bytes(shape)));
    const pjrt::DeviceArrayPtr array = system.runtime().put(
        stream.device(), driver::HostView(dtype_of(shape), dims_of(shape), bytes));
    stream.follow(array->ready());
    system.memory().set(address_of(base_of(buffer, leaves[i])), array);
  }
}

// The events of the arrays, and not the stream, have the errors of this transfer.
std::vector<driver::Event> from_device(int device, const XLA_ShapedBuffer& buffer,
                                       const XLA_Literal& literal) {
  System& system = System::get();
  const std::vector<Leaf> leaves = paired_leaves(literal, buffer);
  std::vector<driver::Event> events;
  try {
    for (size_t i = 0; i < leaves.size(); ++i) {
      const XLA_Shape& shape = *leaves[i].shape;
      const std::span out(reinterpret_cast<std::byte*>(literal.buffers[i]),
                          static_cast<size_t>(payload_bytes(shape)));
      events.push_back(system.memory().read(address_of(base_of(buffer, leaves[i])), dtype_of(shape),
                                            dims_of(shape), out));
    }
  } catch (...) {
    for (const driver::Event& event : events) {  // they write into memory that the caller frees
      event.wait_for_error();
    }
    Stream::told(pjrt::error_of_exception(), device);
    throw;
  }
  return events;
}

// The sizes that the arrays have at run time. Waits for what computes them.
void read_sizes(const XLA_ShapedBuffer& buffer, XLA_Shape& updated) {
  for (const Leaf& leaf : leaves_of(updated)) {
    const Contents contents = System::get().memory().contents(address_of(base_of(buffer, leaf)));
    const auto* sized = std::get_if<Sized>(&contents);
    if (sized == nullptr) {
      continue;
    }
    driver::Shape dims;
    for (const pjrt::DeviceArrayPtr& size : sized->sizes) {
      int32_t value = 0;
      size->read(0, std::as_writable_bytes(std::span(&value, 1))).wait();
      dims.push_back(value);
    }
    auto& shape = const_cast<XLA_Shape&>(*leaf.shape);
    const int element_type = shape.element_type;
    free_shape(shape);
    make_shape(element_type, dims, shape);
  }
}

void end_transfer(int device, const std::vector<driver::Event>& events,
                  XLA_StatusCallbackFn callback, void* context) {
  auto status = std::make_unique<TF_Status>();
  for (const driver::Event& event : events) {
    if (const auto error = event.wait_for_error(); error && status->code == 0) {
      set_from_error(status.get(), error.get());
      Stream::told(*error, device);
    }
  }
  callback(context, status.release());
}

}  // namespace
}  // namespace tpu::tensorflow

using namespace tpu::tensorflow;  // NOLINT: the slots below are all of this file

extern "C" {

XLA_TransferManager* TpuTransferManager_New() {
  return reinterpret_cast<XLA_TransferManager*>(&manager_tag);
}

void TpuTransferManager_Free(XLA_TransferManager* /*manager*/) {}

SE_PlatformId TpuTransferManager_PlatformId(XLA_TransferManager* /*manager*/) {
  return {&platform_id};
}

void TpuTransferManager_TransferLiteralToDeviceAsync(XLA_TransferManager* /*manager*/,
                                                     SE_Stream* stream, XLA_Literal* literal,
                                                     XLA_ShapedBuffer* buffer, TF_Status* status) {
  answer(__func__, status, [&] { to_device(stream->stream, *literal, *buffer); });
}

// The callback gets an error, too: the caller frees its context there, and the status.
void TpuTransferManager_TransferLiteralFromDevice(XLA_TransferManager* /*manager*/,
                                                  SE_Stream* stream, XLA_ShapedBuffer* buffer,
                                                  XLA_Literal* literal,
                                                  XLA_StatusCallbackFn callback, void* context) {
  auto status = std::make_unique<TF_Status>();
  std::vector<tpu::driver::Event> events;
  const int device = stream->stream.device();
  if (!answer(__func__, status.get(), [&] { events = from_device(device, *buffer, *literal); })) {
    callback(context, status.release());
    return;
  }
  const bool later = answer(__func__, nullptr, [&] {
    stream->stream.call(
        [device, events, callback, context] { end_transfer(device, events, callback, context); });
  });
  if (!later) {  // the stream has no thread for it
    end_transfer(device, events, callback, context);
  }
}

bool TpuTransferManager_CanShapedBufferBeAccessedNow(XLA_TransferManager* /*manager*/,
                                                     SE_StreamExecutor* /*executor*/,
                                                     XLA_ShapedBuffer* /*buffer*/) {
  return true;  // reads wait for what writes the memory
}

bool TpuTransferManager_CanBufferBeAccessedNow(XLA_TransferManager* /*manager*/,
                                               SE_StreamExecutor* /*executor*/,
                                               SE_DeviceMemoryBase* /*buffer*/) {
  return true;
}

void TpuTransferManager_WriteSingleTupleIndexTable(XLA_TransferManager* /*manager*/,
                                                   SE_Stream* /*stream*/,
                                                   SE_DeviceMemoryBase* members, size_t count,
                                                   XLA_Shape* /*shape*/, SE_DeviceMemoryBase* table,
                                                   TF_Status* status) {
  answer(__func__, status, [&] {
    TupleTable written;
    for (size_t i = 0; i < count; ++i) {
      written.members.push_back(address_of(members[i]));
    }
    System::get().memory().set(address_of(*table), std::move(written));
  });
}

void TpuTransferManager_ReadDynamicShapes(SE_Stream* /*stream*/, XLA_ShapedBuffer* buffer,
                                          const XLA_Shape* original, XLA_Shape* updated,
                                          TF_Status* status) {
  answer(__func__, status, [&] {
    copy_shape(*original, *updated);
    read_sizes(*buffer, *updated);
  });
}

void TpuTransferManager_ResetDevices(XLA_TransferManager* /*manager*/,
                                     SE_StreamExecutor** /*executors*/, int64_t /*count*/,
                                     TF_Status* /*status*/) {}

}  // extern "C"
