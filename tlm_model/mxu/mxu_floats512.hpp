// Vectors of 16 floats, as the kernels' templates want them. Included by one unit per instruction
// set; everything is internal to it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tpu::model {
namespace {

struct Floats512 {
  using F = __m512;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kVectors = 4;
  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* at) { return _mm512_load_ps(at); }
  static F loadu(const float* at) { return _mm512_loadu_ps(at); }
  static void store(float* at, F value) { _mm512_storeu_ps(at, value); }
  static void storeu(float* at, F value) { _mm512_storeu_ps(at, value); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static bool any_minus_zero(F a) {
    return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)) != 0;
  }
  static F canonical(F a) {
    return canonical_if(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), _mm512_castps_si512(a));
  }
  static F canonical_if(__mmask16 nan, __m512i bits) {
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(bits, nan, 0x7fc00000));
  }
};

}  // namespace
}  // namespace tpu::model
