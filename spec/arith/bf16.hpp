// bfloat16 (1 sign, 8 exponent, 7 fraction bits): values travel as uint16_t
// bits. Rules: bf16 to f32 is exact, subnormals and NaN payloads included: a bf16 is the upper half
// of its f32. So is f32 to bf16 where the f32 is one of those, hence values that only move keep
// their bits. Others round to nearest even: subnormals become zero of their sign, NaNs 0x7fc0.
#pragma once

#include <cstdint>

#include "arith/f32.hpp"

namespace tpu::spec {

inline constexpr uint16_t kBf16CanonicalNan = 0x7fc0u;

constexpr uint32_t bf16_to_f32_bits(uint16_t bits) { return uint32_t{bits} << 16; }

constexpr uint16_t bf16_from_f32_bits(uint32_t bits) {
  if ((bits & 0xffffu) == 0) {
    return static_cast<uint16_t>(bits >> 16);
  }
  const uint32_t value = f32_canonical(bits);
  if (f32_is_nan(value)) {
    return kBf16CanonicalNan;
  }
  return static_cast<uint16_t>((value + 0x7fffu + ((value >> 16) & 1u)) >> 16);
}

constexpr uint16_t bf16_from_f32(float value) { return bf16_from_f32_bits(f32_bits(value)); }
constexpr float bf16_to_f32(uint16_t bits) { return f32_from_bits(bf16_to_f32_bits(bits)); }

}  // namespace tpu::spec
