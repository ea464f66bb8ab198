// Every element of a random leaf is a number of its own stream, so that nothing depends on the
// order in which they are made.
#include "loop/initial_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "check/host_room.hpp"
#include "check/refuse.hpp"
#include "format/npy.hpp"
#include "numbers/bf16.hpp"
#include "numbers/random.hpp"

namespace tpu::training {

using driver::DType;
using driver::dtype_bytes;
using driver::element_count;
using driver::host_array;
using driver::HostArray;
using driver::read_npy;
using driver::refuse;
using driver::Shape;
using driver::type_text;
namespace {

HostArray zeros(DType dtype, const Shape& shape) { return host_array(dtype, shape, "state leaf"); }

template <typename Value>
void fill(HostArray& array, Value value) {
  for (size_t at = 0; at < array.bytes.size(); at += sizeof(value)) {
    std::memcpy(array.bytes.data() + at, &value, sizeof(value));
  }
}

HostArray ones(DType dtype, const Shape& shape) {
  HostArray array = zeros(dtype, shape);
  switch (dtype) {
    case DType::kF32:
      fill(array, 1.0f);
      break;
    case DType::kBf16:
      fill(array, bf16_from_f32(1.0f));
      break;
    case DType::kF64:
      fill(array, 1.0);
      break;
    case DType::kC64:
      fill(array, std::complex<float>(1.0f));
      break;
    default:
      for (size_t at = 0; at < array.bytes.size(); at += dtype_bytes(dtype)) {
        array.bytes[at] = std::byte{1};
      }
  }
  return array;
}

constexpr uint16_t kBf16Infinity = 0x7F80;

// Numbers `value(i)` in f64, rounded to f32 and then to bf16 when the program takes that.
template <typename Value>
HostArray floats(const char* rule, DType dtype, const Shape& shape, size_t leaf, Value value) {
  if (dtype != DType::kF32 && dtype != DType::kBf16) {
    refuse(fmt::format("state leaf {}: {} makes f32 or bf16, the program wants {}", leaf, rule,
                       type_text(dtype, shape)));
  }
  HostArray array = zeros(dtype, shape);
  const uint64_t count = element_count(shape);
  const uint64_t element = dtype_bytes(dtype);
  for (uint64_t i = 0; i < count; ++i) {
    const double number = value(i);
    const auto rounded = static_cast<float>(number);
    const uint16_t half = bf16_from_f32(rounded);
    if (std::isinf(rounded) || (dtype == DType::kBf16 && (half & 0x7FFF) == kBf16Infinity)) {
      refuse(fmt::format("state leaf {}: {} makes {}, which is infinite as {}", leaf, rule, number,
                         type_text(dtype, shape)));
    }
    const void* bits = dtype == DType::kF32 ? static_cast<const void*>(&rounded) : &half;
    std::memcpy(array.bytes.data() + i * element, bits, element);
  }
  return array;
}

// Integers take a constant that they can hold.
HostArray constant(DType dtype, const Shape& shape, double number, size_t leaf) {
  if (dtype == DType::kF32 || dtype == DType::kBf16) {
    return floats("constant", dtype, shape, leaf, [&](uint64_t) { return number; });
  }
  HostArray array = zeros(dtype, shape);
  if (dtype == DType::kF64) {
    fill(array, number);
    return array;
  }
  if (dtype == DType::kC64) {
    const HostArray real =
        floats("constant", DType::kF32, {1}, leaf, [&](uint64_t) { return number; });
    for (size_t at = 0; at < array.bytes.size(); at += 2 * real.bytes.size()) {
      std::memcpy(array.bytes.data() + at, real.bytes.data(), real.bytes.size());
    }
    return array;
  }
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  const bool is_signed =
      dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64;
  const int bits = dtype == DType::kI1 ? 1 : static_cast<int>(8 * bytes) - (is_signed ? 1 : 0);
  const double limit = std::ldexp(1.0, bits);
  if (number != std::floor(number) || number >= limit || number < (is_signed ? -limit : 0.0)) {
    refuse(fmt::format("state leaf {}: {} cannot hold the constant {}", leaf,
                       type_text(dtype, shape), number));
  }
  const uint64_t value = number < 0 ? static_cast<uint64_t>(static_cast<int64_t>(number))
                                    : static_cast<uint64_t>(number);
  for (size_t at = 0; at < array.bytes.size(); at += bytes) {
    std::memcpy(array.bytes.data() + at, &value, bytes);  // little-endian
  }
  return array;
}

HostArray normal(DType dtype, const Shape& shape, double deviation, uint64_t seed, size_t leaf) {
  const RandomStream stream(seed, RandomPurpose::kState, static_cast<uint32_t>(leaf));
  return floats("normal", dtype, shape, leaf,
                [&](uint64_t i) { return stream.normal(i) * deviation; });
}

HostArray he_normal(DType dtype, const Shape& shape, uint64_t seed, size_t leaf) {
  const uint64_t count = element_count(shape);
  const uint64_t last =
      shape.empty() ? 1 : static_cast<uint64_t>(std::max<int64_t>(shape.back(), 1));
  const double fan_in = static_cast<double>(std::max<uint64_t>(count / last, 1));
  return normal(dtype, shape, std::sqrt(2.0 / fan_in), seed, leaf);
}

HostArray glorot_uniform(DType dtype, const Shape& shape, uint64_t seed, size_t leaf) {
  const size_t rank = shape.size();
  double field = 1;
  for (size_t d = 0; d + 2 < rank; ++d) {
    field *= static_cast<double>(shape[d]);
  }
  const double in = rank == 0 ? 1 : static_cast<double>(shape[rank < 2 ? 0 : rank - 2]);
  const double out = rank == 0 ? 1 : static_cast<double>(shape[rank - 1]);
  const double limit = std::sqrt(6.0 / (field * (in + out)));
  const RandomStream stream(seed, RandomPurpose::kState, static_cast<uint32_t>(leaf));
  return floats("glorot_uniform", dtype, shape, leaf,
                [&](uint64_t i) { return (2.0 * stream.uniform(i) - 1.0) * limit; });
}

}  // namespace

HostArray initial_leaf(const Init& init, DType dtype, const Shape& shape, uint64_t seed,
                       size_t leaf) {
  switch (init.kind) {
    case InitKind::kZeros:
      return zeros(dtype, shape);
    case InitKind::kOnes:
      return ones(dtype, shape);
    case InitKind::kConstant:
      return constant(dtype, shape, init.value, leaf);
    case InitKind::kNormal:
      return normal(dtype, shape, init.value, seed, leaf);
    case InitKind::kHeNormal:
      return he_normal(dtype, shape, seed, leaf);
    case InitKind::kGlorotUniform:
      return glorot_uniform(dtype, shape, seed, leaf);
    case InitKind::kFile:
      break;
  }
  HostArray array = read_npy(init.path);
  if (array.dtype != dtype || array.shape != shape) {
    refuse(fmt::format("{}: state leaf {} must be {}, the file holds {}", init.path, leaf,
                       type_text(dtype, shape), type_text(array.dtype, array.shape)));
  }
  return array;
}

}  // namespace tpu::training
