// f32 to bf16 on the host, for data and initial values that a program takes as bf16.
#pragma once

#include <bit>
#include <cstdint>

namespace tpu::training {

/// To nearest even; NaN stays NaN.
inline uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return 0x7FC0;
  }
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

}  // namespace tpu::training
