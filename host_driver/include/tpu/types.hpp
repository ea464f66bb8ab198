// Element types, shapes and host arrays as the driver's interface uses them. Dense, row-major,
// little-endian; i1 is one byte 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver {

/// Order and meaning as in the executable format.
enum class DType : uint8_t { kF32, kBf16, kI32, kU32, kI8, kU8, kI1, kI16, kU16, kI64, kU64 };

/// Bytes of one element; throws InvalidArgument for a value that is no dtype.
uint64_t dtype_bytes(DType dtype);

/// "f32", "bf16", "i32", "ui32", ...
const char* dtype_name(DType dtype);

using Shape = std::vector<int64_t>;

/// Product of the dimensions; throws InvalidArgument for negative dimensions or more than 2^62.
uint64_t element_count(const Shape& shape);

/// Bytes of a dense array; throws InvalidArgument as element_count(), for more than 2^62 bytes and
/// for a dtype that is none.
uint64_t byte_count(DType dtype, const Shape& shape);

/// "f32[2,3]"
std::string type_text(DType dtype, const Shape& shape);

/// An array in host memory that owns its bytes.
struct HostArray {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

/// An array in host memory that somebody else owns.
struct HostView {
  HostView(DType element_type, Shape dims, std::span<const std::byte> data)
      : dtype(element_type), shape(std::move(dims)), bytes(data) {}
  HostView(const HostArray& array)  // NOLINT: a view of an array is meant to be made silently
      : dtype(array.dtype), shape(array.shape), bytes(array.bytes) {}

  DType dtype;
  Shape shape;
  std::span<const std::byte> bytes;
};

}  // namespace tpu::driver
