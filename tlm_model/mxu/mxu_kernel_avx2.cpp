// AVX2 kernels of the fast engine: blocks of 3 rows by 16 columns.
#include <immintrin.h>

#include "mxu/mxu_fma_short.hpp"

namespace tpu::model {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int64_t kWidth = 8;
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kRows = 3;
  static constexpr bool kBothChains = true;
  static constexpr int64_t kSlotTerms = 1;
  static constexpr double kSparseBelow = 0.75;  // measured: docs/matrix_engine.md
  static F zero() { return _mm256_setzero_ps(); }
  static F load(const float* at) { return _mm256_load_ps(at); }
  static F loadu(const float* at) { return _mm256_loadu_ps(at); }
  static void store(float* at, F value) { _mm256_storeu_ps(at, value); }
  static void storeu(float* at, F value) { _mm256_storeu_ps(at, value); }
  static void stream(float* at, F value) { _mm256_stream_ps(at, value); }
  static void keep(F& value) { __asm__("" : "+x"(value)); }
  static F broadcast(const float* at) { return _mm256_broadcast_ss(at); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F round(const float* from) { return round8(from); }
  static F widen(const uint8_t* from) { return widen8(from); }
  static bool any_nan(F a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }
  static bool any_minus_zero(F a) {
    const __m256i minus_zero = _mm256_set1_epi32(INT32_MIN);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_castps_si256(a), minus_zero)) != 0;
  }
  static F canonical(F a) {
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
};

}  // namespace

const MxuKernelSet* mxu_kernels_avx2() {
  static constexpr MxuKernelSet set = {.nr = 16,
                                       .block_segments = 8,
                                       .few_rows = 64,
                                       .few_rows_segments = 4,
                                       .block_rows = 48,
                                       .outer_rows = 192,
                                       .block_panels = 32,
                                       .placed_panels = 8,
                                       .placed_rhs_room = 4 << 20,
                                       .slot_terms = 1,
                                       .range_terms = 1,
                                       .range_step = 1,
                                       .even_rows = 1,
                                       .bf16_in_place = false,
                                       .few_terms = nullptr,
                                       .few_terms_below = 0,
                                       .skip_below_density = 0.0,
                                       .sparse_columns = SparseSegment<Avx2>::kColumns,
                                       .sparse_below = Avx2::kSparseBelow,
                                       .rhs_piece = 0,
                                       .lhs_bytes = fma_lhs_bytes,
                                       .rhs_bytes = fma_rhs_bytes<Avx2>,
                                       .pack_lhs = fma_pack_lhs<Avx2>,
                                       .pack_rhs = fma_pack_rhs<Avx2>,
                                       .multiply = fma_multiply<Avx2>,
                                       .is_short = has_few_terms,
                                       .multiply_sparse = fma_multiply_sparse<Avx2>,
                                       .round_range = fma_round_range<Avx2>};
  return &set;
}

}  // namespace tpu::model
