// Element types, shapes and host arrays as the driver's interface uses them. Dense, row-major,
// little-endian; i1 is one byte 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver {

/// Order and meaning as in the executable format. The last five are elements of that many bytes of
/// which the board knows no more (half floats, complex128, the small floats and
/// integers of other machines): arrays of them are put, copied and read, and no program takes them.
enum class DType : uint8_t {
  kF32,
  kBf16,
  kI32,
  kU32,
  kI8,
  kU8,
  kI1,
  kI16,
  kU16,
  kI64,
  kU64,
  kC64,  ///< complex64: real and imaginary part, f32 each
  kF64,  ///< IEEE binary64; programs compute with pairs of f32
  kBytes1 = 0x80,
  kBytes2,
  kBytes4,
  kBytes8,
  kBytes16,
};

/// Bytes of one element; throws InvalidArgument for a value that is no dtype.
uint64_t dtype_bytes(DType dtype);

/// "f32", "bf16", "i32", "ui32", ..., "bytes2", ...
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
  DType dtype = DType::kF32;     ///< element type
  Shape shape;                   ///< dimensions
  std::vector<std::byte> bytes;  ///< dense, row-major
};

/// An array in host memory that somebody else owns. Dense and row-major, or with a stride of its
/// own for each dimension; the bytes are read during the call that takes the view, and not after
/// it.
struct HostView {
  /// Dense and row-major.
  HostView(DType element_type, Shape dims, std::span<const std::byte> data)
      : dtype(element_type), shape(std::move(dims)), bytes(data) {}
  /// `data` is all that may be read; element [i,j,..] begins `first + i * strides[0] + j *
  /// strides[1] + ..` bytes into it. Strides may be negative, zero (an element repeated) and of any
  /// alignment. A view that leaves `data` is InvalidArgument where it is used.
  HostView(DType element_type, Shape dims, std::span<const std::byte> data,
           std::vector<int64_t> byte_strides, uint64_t first = 0)
      : dtype(element_type),
        shape(std::move(dims)),
        bytes(data),
        strides(std::move(byte_strides)),
        first_byte(first) {}
  /// Of all of `array`, which must outlive the view.
  HostView(const HostArray& array)  // NOLINT: a view of an array is meant to be made silently
      : dtype(array.dtype), shape(array.shape), bytes(array.bytes) {}

  DType dtype;                       ///< element type
  Shape shape;                       ///< dimensions
  std::span<const std::byte> bytes;  ///< all that may be read
  std::vector<int64_t> strides;      ///< bytes, one a dimension; empty: dense and row-major
  uint64_t first_byte = 0;           ///< of element [0,0,..] in `bytes`; with strides only
};

}  // namespace tpu::driver
