// IEEE binary16 to f32 on the host: not all compilers have a type for it.
#pragma once

#include <bit>
#include <cstdint>

namespace tpu::training {

/// Exact: subnormals are kept. NaNs become quiet and keep their sign and payload.
inline float f32_from_f16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 0x1F) {
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | fraction << 13);
  }
  constexpr uint32_t kBias = 127 - 15;
  return std::bit_cast<float>(sign | (exponent + kBias) << 23 | fraction << 13);
}

}  // namespace tpu::training
