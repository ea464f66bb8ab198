#include "runtime/dense_view.hpp"

#include <cstring>

namespace tpu::pjrt {
namespace {

// Copies the part of `view` from dimension `dim` on, whose first element is at `from`.
std::byte* pack(const driver::HostView& view, size_t dim, const std::byte* from, size_t element,
                std::byte* to) {
  if (dim == view.shape.size()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  if (dim + 1 == view.shape.size() && view.strides[dim] == static_cast<int64_t>(element)) {
    const size_t row = static_cast<size_t>(view.shape[dim]) * element;
    std::memcpy(to, from, row);
    return to + row;
  }
  for (int64_t i = 0; i < view.shape[dim]; ++i) {
    to = pack(view, dim + 1, from + i * view.strides[dim], element, to);
  }
  return to;
}

}  // namespace

std::span<const std::byte> dense(const driver::HostView& view, std::vector<std::byte>& own) {
  if (view.strides.empty()) {
    return view.bytes;
  }
  own.resize(driver::byte_count(view.dtype, view.shape));
  if (!own.empty()) {
    pack(view, 0, view.bytes.data() + view.first_byte, driver::dtype_bytes(view.dtype), own.data());
  }
  return own;
}

}  // namespace tpu::pjrt
