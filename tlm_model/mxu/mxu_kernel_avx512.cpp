// AVX-512 kernels of the fast engine: blocks of 6 rows by 64 columns.
#include <immintrin.h>

#include "mxu/mxu_floats512.hpp"
#include "mxu/mxu_fma_short.hpp"

namespace tpu::model {
namespace {

struct Avx512 : Floats512 {
  static constexpr int64_t kRows = 6;
  static constexpr bool kBothChains = false;
  static constexpr int64_t kSlotTerms = 1;
  static constexpr double kSparseBelow = 0.75;  // measured: docs/matrix_engine.md
  static void stream(float* at, F value) { _mm512_stream_ps(at, value); }
  static void keep([[maybe_unused]] F& value) {
#ifdef __AVX512F__  // emulated vectors are in no register
    __asm__("" : "+v"(value));
#endif
  }
  static F broadcast(const float* at) { return _mm512_set1_ps(*at); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F round(const float* from) {
    float one = 1.0F;
    __asm__("" : "+x"(one));  // the compiler would drop a product with 1, which flushes subnormals
    const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(one));
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return canonical_if(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_and_si512(sum, upper));
  }
  static F widen(const uint8_t* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static bool any_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
};

}  // namespace

const MxuKernelSet* mxu_kernels_avx512() {
  static constexpr MxuKernelSet set = {.nr = 64,
                                       .block_segments = 8,
                                       .few_rows = 64,
                                       .few_rows_segments = 4,
                                       .block_rows = 96,
                                       .outer_rows = 384,
                                       .block_panels = 8,
                                       .placed_panels = 2,
                                       .placed_rhs_room = 4 << 20,
                                       .slot_terms = 1,
                                       .range_terms = 1,
                                       .range_step = 1,
                                       .even_rows = 1,
                                       .bf16_in_place = false,
                                       .few_terms = nullptr,
                                       .few_terms_below = 0,
                                       .skip_below_density = 0.0,
                                       .sparse_columns = SparseSegment<Avx512>::kColumns,
                                       .sparse_below = Avx512::kSparseBelow,
                                       .rhs_piece = 0,
                                       .lhs_bytes = fma_lhs_bytes,
                                       .rhs_bytes = fma_rhs_bytes<Avx512>,
                                       .pack_lhs = fma_pack_lhs<Avx512>,
                                       .pack_rhs = fma_pack_rhs<Avx512>,
                                       .multiply = fma_multiply<Avx512>,
                                       .is_short = has_few_terms,
                                       .multiply_sparse = fma_multiply_sparse<Avx512>,
                                       .round_range = fma_round_range<Avx512>};
  return &set;
}

}  // namespace tpu::model
