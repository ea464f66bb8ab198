// Operands as bf16 by the instructions of AVX512_BF16. Included by one unit per instruction set;
// everything is internal to it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tpu::model {
namespace {

// f32 to bf16 to nearest even, subnormals to signed zero, whatever MXCSR says. NaN keeps the upper
// part of its payload, which nobody sees: results that are NaN become the canonical one.
inline __m256i round_f32(__m512i bits) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_castsi512_ps(bits)));
}

// Up to 16 consecutive elements as bf16, zeros behind them.
inline __m256i load_bf16(const uint8_t* from, bool is_bf16, int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffffU : (1U << count) - 1U);
  if (is_bf16) {
    return _mm256_maskz_loadu_epi16(mask, from);
  }
  return round_f32(_mm512_maskz_loadu_epi32(mask, from));
}

inline uint16_t scalar_bf16(const uint8_t* from, bool is_bf16) {
  return static_cast<uint16_t>(_mm256_extract_epi16(load_bf16(from, is_bf16, 1), 0));
}

}  // namespace
}  // namespace tpu::model
