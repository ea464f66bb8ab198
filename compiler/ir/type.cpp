// Element and tensor types, dense constants: sizes, names, reading and making elements.
#include "ir/type.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/error.hpp"

namespace tpu::compiler {
namespace {

struct ElemFacts {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<ElemFacts, 22> kElemFacts = {{
    {"i1", 1},   {"i8", 1},   {"i16", 2},         {"i32", 4},   {"i64", 8}, {"ui8", 1},
    {"ui16", 2}, {"ui32", 4}, {"ui64", 8},        {"bf16", 2},  {"f32", 4}, {"complex64", 8},
    {"f64", 8},  {"i2", 1},   {"i4", 1},          {"ui2", 1},   {"ui4", 1}, {"f16", 2},
    {"tf32", 4}, {"f8", 1},   {"complex128", 16}, {"index", 8},
}};

const ElemFacts& facts(Elem e) { return kElemFacts.at(static_cast<size_t>(e)); }

template <typename T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

uint16_t to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if (std::isnan(f)) {
    return 0x7fc0;
  }
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

void store_int(Elem e, int64_t value, std::byte* p) {
  // Little-endian host: the low bytes come first.
  std::memcpy(p, &value, static_cast<size_t>(elem_bytes(e)));
}

}  // namespace

bool is_supported(Elem e) { return e <= Elem::kF64; }
bool is_complex(Elem e) { return e == Elem::kComplex64; }
bool has_parts(Elem e) { return is_complex(e) || e == Elem::kF64; }
bool is_float(Elem e) { return e == Elem::kBf16 || e == Elem::kF32 || e == Elem::kF64; }
bool is_signed(Elem e) { return e >= Elem::kI8 && e <= Elem::kI64; }
bool is_unsigned(Elem e) { return e >= Elem::kU8 && e <= Elem::kU64; }
bool is_integer(Elem e) { return is_signed(e) || is_unsigned(e); }
int64_t elem_bytes(Elem e) { return facts(e).bytes; }
std::string_view elem_name(Elem e) { return facts(e).name; }

int64_t Type::count() const {
  // So that sizes in bytes fit, too.
  constexpr int64_t kMost = int64_t{1} << 56;
  int64_t n = 1;
  for (const int64_t d : dims) {
    if (__builtin_mul_overflow(n, d, &n) || n > kMost) {
      if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
        return 0;
      }
      throw Error("an array of type " + to_string(*this) +
                  " has more than 2^56 elements; work on it in parts (jax.lax.map)");
    }
  }
  return n;
}

std::string to_string(const Dims& dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    s += (i ? "," : "") + std::to_string(dims[i]);
  }
  return s + "]";
}

std::string to_string(const Type& type) {
  return std::string(elem_name(type.elem)) + to_string(type.dims);
}

bool advance(Dims& at, const Dims& size) {
  for (size_t d = at.size(); d-- > 0;) {
    if (++at[d] < size[d]) {
      return true;
    }
    at[d] = 0;
  }
  return false;
}

Dims row_major_strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return strides;
}

const std::byte* Dense::element(int64_t index) const {
  return data->data() + (splat ? 0 : index * elem_bytes(type.elem));
}

double Dense::as_double(int64_t index) const {
  const std::byte* p = element(index);
  switch (type.elem) {
    case Elem::kF32:
      return load<float>(p);
    case Elem::kBf16:
      return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(p)) << 16);
    case Elem::kF64:
      return load<double>(p);
    case Elem::kU64:
      return static_cast<double>(load<uint64_t>(p));
    default:
      return static_cast<double>(as_int(index));
  }
}

int64_t Dense::as_int(int64_t index) const {
  const std::byte* p = element(index);
  switch (type.elem) {
    case Elem::kI1:
      return load<uint8_t>(p) != 0;
    case Elem::kU8:
      return load<uint8_t>(p);
    case Elem::kI8:
      return load<int8_t>(p);
    case Elem::kU16:
      return load<uint16_t>(p);
    case Elem::kI16:
      return load<int16_t>(p);
    case Elem::kU32:
      return load<uint32_t>(p);
    case Elem::kI32:
      return load<int32_t>(p);
    case Elem::kI64:
    case Elem::kU64:
      return load<int64_t>(p);
    default:
      throw Error("a constant of type " + to_string(type) + " was read as an integer");
  }
}

std::vector<std::byte> Dense::expanded() const {
  if (!splat) {
    return *data;
  }
  const auto size = static_cast<size_t>(elem_bytes(type.elem));
  std::vector<std::byte> out(static_cast<size_t>(type.bytes()));
  for (size_t i = 0; i < out.size(); i += size) {
    std::memcpy(out.data() + i, data->data(), size);
  }
  return out;
}

Dense make_dense(const Type& type, std::vector<std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) != type.bytes()) {
    throw Error("a constant of type " + to_string(type) + " needs " + std::to_string(type.bytes()) +
                " bytes, not " + std::to_string(bytes.size()));
  }
  return {type, false, std::make_shared<const std::vector<std::byte>>(std::move(bytes))};
}

Dense make_splat_int(const Type& type, int64_t value) {
  if (is_float(type.elem)) {
    return make_splat(type, static_cast<double>(value));
  }
  std::vector<std::byte> one(static_cast<size_t>(elem_bytes(type.elem)));
  store_int(type.elem, type.elem == Elem::kI1 ? value != 0 : value, one.data());
  return {type, true, std::make_shared<const std::vector<std::byte>>(std::move(one))};
}

Dense make_splat(const Type& type, double value) {
  std::vector<std::byte> one(static_cast<size_t>(elem_bytes(type.elem)));
  if (type.elem == Elem::kF32) {
    const auto f = static_cast<float>(value);
    std::memcpy(one.data(), &f, sizeof f);
  } else if (type.elem == Elem::kF64) {
    std::memcpy(one.data(), &value, sizeof value);
  } else if (type.elem == Elem::kBf16) {
    const uint16_t b = to_bf16(static_cast<float>(value));
    std::memcpy(one.data(), &b, sizeof b);
  } else {
    return make_splat_int(type, static_cast<int64_t>(value));
  }
  return {type, true, std::make_shared<const std::vector<std::byte>>(std::move(one))};
}

}  // namespace tpu::compiler
