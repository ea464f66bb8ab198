// Loads and stores of elements: see elements.hpp.
#include "ir/elements.hpp"

#include <bit>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/f32.hpp"

namespace tpu::compiler::eval {
namespace {

template <typename T>
std::vector<int64_t> load_as(const Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(t.type.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    T v;
    std::memcpy(&v, t.data.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(v);
  }
  return out;
}

template <typename T>
void store_as(const std::vector<int64_t>& values, Tensor& t) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T v = static_cast<T>(values[i]);
    std::memcpy(t.data.data() + i * sizeof(T), &v, sizeof(T));
  }
}

}  // namespace

float canonical(float x) { return spec::f32_from_bits(spec::f32_canonical(spec::f32_bits(x))); }

std::vector<float> load_floats(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.type.count()));
  if (t.type.elem == Elem::kF32) {
    std::memcpy(out.data(), t.data.data(), t.data.size());
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t v;
    std::memcpy(&v, t.data.data() + 2 * i, 2);
    out[i] = std::bit_cast<float>(spec::bf16_to_f32_bits(v));
  }
  return out;
}

void store_floats(const std::vector<float>& values, Tensor& t) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    if (t.type.elem == Elem::kF32) {
      std::memcpy(t.data.data() + 4 * i, &bits, 4);
    } else {
      const uint16_t b = spec::bf16_from_f32_bits(bits);
      std::memcpy(t.data.data() + 2 * i, &b, 2);
    }
  }
}

std::vector<int64_t> load_ints(const Tensor& t) {
  switch (t.type.elem) {
    case Elem::kI1:
    case Elem::kU8:
      return load_as<uint8_t>(t);
    case Elem::kI8:
      return load_as<int8_t>(t);
    case Elem::kI16:
      return load_as<int16_t>(t);
    case Elem::kU16:
      return load_as<uint16_t>(t);
    case Elem::kI32:
      return load_as<int32_t>(t);
    case Elem::kU32:
      return load_as<uint32_t>(t);
    default:
      return load_as<int64_t>(t);
  }
}

void store_ints(const std::vector<int64_t>& values, Tensor& t) {
  switch (elem_bytes(t.type.elem)) {
    case 1:
      return store_as<uint8_t>(values, t);
    case 2:
      return store_as<uint16_t>(values, t);
    case 4:
      return store_as<uint32_t>(values, t);
    default:
      return store_as<int64_t>(values, t);
  }
}

int64_t int_at(const Tensor& t, size_t i) {
  Tensor one{{t.type.elem, {}}, {}};
  const auto size = static_cast<size_t>(elem_bytes(t.type.elem));
  one.data.assign(t.data.begin() + static_cast<std::ptrdiff_t>(i * size),
                  t.data.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
  return load_ints(one)[0];
}

}  // namespace tpu::compiler::eval
