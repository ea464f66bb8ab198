// Arrays in the memory of cores.
#include "host_view.hpp"
#include "process_board.hpp"

namespace tpu::c_api {
namespace {

using client::ProcessBoard;

std::span<std::byte> room(const driver::Array& array, void* data, size_t bytes) {
  const uint64_t wanted = driver::byte_count(array.dtype(), array.shape());
  if (bytes != wanted) {
    refuse("`data` has " + std::to_string(bytes) + " bytes, but " +
           driver::type_text(array.dtype(), array.shape()) + " has " + std::to_string(wanted));
  }
  return {bytes == 0 ? nullptr : &need(static_cast<std::byte*>(data), "data"), bytes};
}

tpu_array_info info_of(const driver::Array& array) {
  tpu_array_info info{};
  info.dtype = static_cast<tpu_dtype>(array.dtype());
  info.part_count = static_cast<uint32_t>(array.parts().size());
  info.rank = array.shape().size();
  info.shape = array.shape().data();
  info.local_shape = array.layout().local.data();
  info.bytes = driver::byte_count(array.dtype(), array.shape());
  info.live = std::all_of(array.parts().begin(), array.parts().end(),
                          [](const driver::Buffer& part) { return part.live(); });
  return info;
}

}  // namespace
}  // namespace tpu::c_api

using namespace tpu::c_api;  // NOLINT: the calls are its only users

tpu_status tpu_array_put(int32_t device, const tpu_host_array* host, tpu_array** out) {
  return guarded([&] {
    need(out, "out");
    const tpu::driver::HostView view = view_of(need(host, "host"));
    const tpu::driver::Buffer part = ProcessBoard::get().board().put(device, view);
    tpu::driver::Layout layout{view.shape, {tpu::driver::Shape(view.shape.size(), 0)}, true};
    *out = new tpu_array{{view.dtype, view.shape, std::move(layout), {part}}};
  });
}

tpu_status tpu_get_array_info(const tpu_array* array, tpu_array_info* info) {
  return guarded([&] { give(info, info_of(need(array, "array").array), "info"); });
}

int32_t tpu_array_device(const tpu_array* array, uint32_t part) {
  const bool there = array != nullptr && part < array->array.parts().size();
  return there ? array->array.parts()[part].device() : -1;
}

tpu_status tpu_array_read(const tpu_array* array, void* data, size_t bytes) {
  return guarded([&] {
    const tpu::driver::Array& from = need(array, "array").array;
    from.read(room(from, data, bytes)).wait();
  });
}

tpu_status tpu_array_read_async(const tpu_array* array, void* data, size_t bytes, tpu_event** out) {
  return guarded([&] {
    need(out, "out");
    const tpu::driver::Array& from = need(array, "array").array;
    auto event = std::make_unique<tpu_event>();
    event->event = from.read(room(from, data, bytes));
    *out = event.release();
  });
}

tpu_status tpu_array_discard(const tpu_array* array) {
  return guarded([&] { need(array, "array").array.discard(); });
}

void tpu_array_destroy(tpu_array* array) { delete array; }
