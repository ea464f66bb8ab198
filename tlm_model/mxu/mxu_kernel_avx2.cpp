// AVX2 kernels of the fast engine: blocks of 6 rows by 16 columns.
#include <immintrin.h>

#include "mxu/mxu_fma_kernel.hpp"

namespace tpu::model {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kRows = 6;
  static F zero() { return _mm256_setzero_ps(); }
  static F load(const float* at) { return _mm256_load_ps(at); }
  static F loadu(const float* at) { return _mm256_loadu_ps(at); }
  static void store(float* at, F value) { _mm256_storeu_ps(at, value); }
  static void storeu(float* at, F value) { _mm256_storeu_ps(at, value); }
  static F broadcast(const float* at) { return _mm256_broadcast_ss(at); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F canonical(F a) {
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static F widen_bf16(const uint8_t* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  // Round to nearest even; subnormals to signed zero; NaN canonical.
  static F round_f32(const uint8_t* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    rounded = _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xffff0000U)));
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i small = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000U)));
    rounded = _mm256_blendv_epi8(rounded, sign, small);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan));
  }
};

}  // namespace

const MxuKernelSet* mxu_kernels_avx2() {
  static constexpr MxuKernelSet set = {.nr = 16,
                                       .row_granule = Avx2::kRows,
                                       .block_segments = 8,
                                       .block_rows = 384,
                                       .block_panels = 32,
                                       .lhs_bytes = fma_lhs_bytes<Avx2>,
                                       .rhs_bytes = fma_rhs_bytes<Avx2>,
                                       .pack_lhs = fma_pack_lhs<Avx2>,
                                       .pack_rhs = fma_pack_rhs<Avx2>,
                                       .multiply = fma_multiply<Avx2>};
  return &set;
}

}  // namespace tpu::model
