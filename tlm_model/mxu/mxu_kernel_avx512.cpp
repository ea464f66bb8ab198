// AVX-512 kernels of the fast engine: blocks of 6 rows by 64 columns.
#include <immintrin.h>

#include "mxu/mxu_fma_kernel.hpp"
#include "mxu/mxu_fma_sparse.hpp"

namespace tpu::model {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int64_t kWidth = 16;
  static constexpr int64_t kVectors = 4;
  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* at) { return _mm512_load_ps(at); }
  static F loadu(const float* at) { return _mm512_loadu_ps(at); }
  static void store(float* at, F value) { _mm512_storeu_ps(at, value); }
  static void storeu(float* at, F value) { _mm512_storeu_ps(at, value); }
  static F broadcast(const float* at) { return _mm512_set1_ps(*at); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static bool any_minus_zero(F a) {
    return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)) != 0;
  }
  static F canonical(F a) {
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(a), nan, 0x7fc00000));
  }
};

}  // namespace

const MxuKernelSet* mxu_kernels_avx512() {
  static constexpr MxuKernelSet set = {.nr = 64,
                                       .block_segments = 8,
                                       .block_rows = 96,
                                       .outer_rows = 384,
                                       .block_panels = 8,
                                       .lhs_bytes = fma_lhs_bytes,
                                       .rhs_bytes = fma_rhs_bytes<Avx512>,
                                       .pack_lhs = fma_pack_lhs,
                                       .pack_rhs = fma_pack_rhs<Avx512>,
                                       .multiply = fma_multiply<Avx512>,
                                       .multiply_sparse = fma_multiply_sparse<Avx512>,
                                       .round_range = fma_round_range};
  return &set;
}

}  // namespace tpu::model
