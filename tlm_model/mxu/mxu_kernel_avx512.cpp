// AVX-512 kernels of the fast engine: blocks of 12 rows by 32 columns.
#include <immintrin.h>

#include "mxu/mxu_fma_kernel.hpp"

namespace tpu::model {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kRows = 12;
  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* at) { return _mm512_load_ps(at); }
  static F loadu(const float* at) { return _mm512_loadu_ps(at); }
  static void store(float* at, F value) { _mm512_storeu_ps(at, value); }
  static void storeu(float* at, F value) { _mm512_storeu_ps(at, value); }
  static F broadcast(const float* at) { return _mm512_set1_ps(*at); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F canonical(F a) {
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(a), nan, 0x7fc00000));
  }
  static F widen_bf16(const uint8_t* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  // Round to nearest even; subnormals to signed zero; NaN canonical.
  static F round_f32(const uint8_t* from) {
    const __m512i bits = _mm512_loadu_si512(from);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    const __mmask16 small = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
    const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000U)));
    rounded = _mm512_mask_mov_epi32(rounded, small, sign);
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(rounded, nan, 0x7fc00000));
  }
};

}  // namespace

const MxuKernelSet* mxu_kernels_avx512() {
  static constexpr MxuKernelSet set = {.nr = 32,
                                       .row_granule = Avx512::kRows,
                                       .block_segments = 8,
                                       .block_rows = 384,
                                       .block_panels = 32,
                                       .lhs_bytes = fma_lhs_bytes<Avx512>,
                                       .rhs_bytes = fma_rhs_bytes<Avx512>,
                                       .pack_lhs = fma_pack_lhs<Avx512>,
                                       .pack_rhs = fma_pack_rhs<Avx512>,
                                       .multiply = fma_multiply<Avx512>};
  return &set;
}

}  // namespace tpu::model
