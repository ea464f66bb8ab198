// Element types, tensor types and dense constants of the graph (level G of the compiler).
// Shapes are static. Dense data is little-endian, row-major, in the memory layout of the core: i1
// is one byte 0/1, bf16 two bytes. Types which the board cannot compute are named here so that
// errors can name them; they never get past the import.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tpu::compiler {

enum class Elem : uint8_t {
  kI1,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBf16,
  kF32,
  kComplex64,  // gone after the pass `split_complex`
  kF64,        // gone after the pass `split_double`
  // Named, but refused by the import.
  kI2,
  kI4,
  kU2,
  kU4,
  kF16,
  kTf32,
  kFloat8,
  kComplex128,
  kIndex,
};

bool is_supported(Elem e);
bool is_float(Elem e);       // bf16, f32, f64
bool is_complex(Elem e);     // complex64
bool has_parts(Elem e);      // complex64, f64: behind `split_complex` and `split_double` two arrays
bool is_signed(Elem e);      // i8 .. i64
bool is_unsigned(Elem e);    // ui8 .. ui64
bool is_integer(Elem e);     // signed or unsigned, without i1
int64_t elem_bytes(Elem e);  // in memory; i1 is 1
std::string_view elem_name(Elem e);

using Dims = std::vector<int64_t>;

struct Type {
  Elem elem = Elem::kF32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t count() const;  // number of elements; 1 for a scalar, 0 if a dimension is 0
  int64_t bytes() const { return count() * elem_bytes(elem); }
  bool is_scalar() const { return dims.empty(); }
  bool operator==(const Type&) const = default;
};

std::string to_string(const Type& type);  // "f32[25,784]"; scalars "f32[]"
std::string to_string(const Dims& dims);  // "[1,2]"
// Advances `at` through the box of `size`, last dimension fastest; false after the last position,
// with `at` all zero again.
bool advance(Dims& at, const Dims& size);
Dims row_major_strides(const Dims& dims);  // in elements

// A constant tensor. The bytes are shared and never written after creation. A splat holds one
// element.
struct Dense {
  Type type;
  bool splat = false;
  std::shared_ptr<const std::vector<std::byte>> data;

  const std::byte* element(int64_t index) const;  // address of element `index`
  double as_double(int64_t index) const;          // any supported element type
  int64_t as_int(int64_t index) const;            // i1 and integers; ui64 wraps
  std::vector<std::byte> expanded() const;        // type.bytes() bytes, splat repeated
};

Dense make_splat(const Type& type, double value);  // converted to the element type, nearest even
Dense make_splat_int(const Type& type, int64_t value);
Dense make_dense(const Type& type, std::vector<std::byte> bytes);  // type.bytes() bytes

template <typename T>
Dense make_dense_of(const Type& type, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T v = values[i];
    __builtin_memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
  }
  return make_dense(type, std::move(bytes));
}

}  // namespace tpu::compiler
