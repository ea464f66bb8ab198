// The AVX-512 instructions of the model's kernels as functions of AVX2 halves and plain loops, by
// Intel's descriptions. Included ahead of a kernel source: from here on the intrinsics' names mean
// these functions. What is missing here does not compile there, as -mavx512f is not given.
// Arithmetic takes its mode from MXCSR as the instructions do; aligned accesses check alignment and
// masked ones touch unmasked elements only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tpu::emulation {

#define TPU_EMULATED static inline __attribute__((always_inline))

typedef int32_t I32x16 __attribute__((vector_size(64)));
typedef uint32_t U32x16 __attribute__((vector_size(64)));

template <class To, class From>
TPU_EMULATED To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

struct Halves {
  __m256 low, high;
};
TPU_EMULATED Halves halves(__m512 x) { return bits_as<Halves>(x); }
TPU_EMULATED __m512 whole(__m256 low, __m256 high) { return bits_as<__m512>(Halves{low, high}); }

TPU_EMULATED __mmask16 mask_of(I32x16 lanes) {
  const Halves h = bits_as<Halves>(lanes);
  return static_cast<__mmask16>(_mm256_movemask_ps(h.low) | _mm256_movemask_ps(h.high) << 8);
}
TPU_EMULATED I32x16 lanes_of(__mmask16 mask) {
  const I32x16 bit = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                      1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
  return ((I32x16{} + mask) & bit) != 0;
}

TPU_EMULATED void check_aligned(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 64 != 0) {
    std::fprintf(stderr, "emulated AVX-512: aligned access to %p\n", at);
    std::abort();
  }
}

// ---- f32
TPU_EMULATED __m512 setzero_ps() { return __m512{}; }
TPU_EMULATED __m512 set1_ps(float x) { return whole(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
TPU_EMULATED __m512 loadu_ps(const void* at) {
  __m512 x;
  std::memcpy(&x, at, sizeof x);
  return x;
}
TPU_EMULATED __m512 load_ps(const void* at) {
  check_aligned(at);
  return loadu_ps(at);
}
TPU_EMULATED void storeu_ps(void* at, __m512 x) { std::memcpy(at, &x, sizeof x); }
TPU_EMULATED void store_ps(void* at, __m512 x) {
  check_aligned(at);
  storeu_ps(at, x);
}
TPU_EMULATED __m512 add_ps(__m512 a, __m512 b) { return a + b; }
TPU_EMULATED __m512 mul_ps(__m512 a, __m512 b) { return a * b; }
TPU_EMULATED __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const Halves x = halves(a), y = halves(b), z = halves(c);
  return whole(_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high));
}
TPU_EMULATED __m512 maskz_sqrt_ps(__mmask16 mask, __m512 a) {
  const Halves x = halves(a);
  const __m512 root = whole(_mm256_sqrt_ps(x.low), _mm256_sqrt_ps(x.high));
  return bits_as<__m512>(bits_as<I32x16>(root) & lanes_of(mask));
}
template <int kPredicate>
TPU_EMULATED __mmask16 cmp_ps_mask(__m512 a, __m512 b) {
  const Halves x = halves(a), y = halves(b);
  return mask_of(bits_as<I32x16>(
      whole(_mm256_cmp_ps(x.low, y.low, kPredicate), _mm256_cmp_ps(x.high, y.high, kPredicate))));
}

// ---- 32-bit integers
TPU_EMULATED __m512i set1_epi32(int x) { return bits_as<__m512i>(I32x16{} + x); }
TPU_EMULATED __m512i or_si512(__m512i a, __m512i b) { return a | b; }
TPU_EMULATED __m512i slli_epi32(__m512i a, unsigned n) {
  return n > 31 ? __m512i{} : bits_as<__m512i>(bits_as<U32x16>(a) << n);
}
TPU_EMULATED __m512i srli_epi32(__m512i a, unsigned n) {
  return n > 31 ? __m512i{} : bits_as<__m512i>(bits_as<U32x16>(a) >> n);
}
TPU_EMULATED __m512i and_si512(__m512i a, __m512i b) { return a & b; }
TPU_EMULATED __m512i add_epi32(__m512i a, __m512i b) {
  return bits_as<__m512i>(bits_as<U32x16>(a) + bits_as<U32x16>(b));
}
TPU_EMULATED __m512i mask_mov_epi32(__m512i otherwise, __mmask16 mask, __m512i a) {
  return bits_as<__m512i>(lanes_of(mask) ? bits_as<I32x16>(a) : bits_as<I32x16>(otherwise));
}
TPU_EMULATED __m512i mask_set1_epi32(__m512i otherwise, __mmask16 mask, int x) {
  return mask_mov_epi32(otherwise, mask, set1_epi32(x));
}
TPU_EMULATED __mmask16 test_epi32_mask(__m512i a, __m512i b) {
  return mask_of(bits_as<I32x16>(a & b) != 0);
}
TPU_EMULATED __mmask16 cmpeq_epi32_mask(__m512i a, __m512i b) {
  return mask_of(bits_as<I32x16>(a) == bits_as<I32x16>(b));
}
TPU_EMULATED __mmask32 cmpeq_epi16_mask(__m512i a, __m512i b) {
  uint16_t x[32], y[32];
  std::memcpy(x, &a, sizeof x);
  std::memcpy(y, &b, sizeof y);
  __mmask32 mask = 0;
  for (unsigned i = 0; i < 32; ++i) {
    mask |= static_cast<__mmask32>(x[i] == y[i] ? 1U : 0U) << i;
  }
  return mask;
}

// ---- masked memory: element by element, so that masked elements may lie outside of any page
template <class Vector, class Element>
TPU_EMULATED Vector masked_load(uint32_t mask, const void* from) {
  constexpr unsigned kCount = sizeof(Vector) / sizeof(Element);
  alignas(64) Element elements[kCount] = {};
  for (unsigned i = 0; i < kCount; ++i) {
    if ((mask >> i & 1U) != 0) {
      std::memcpy(&elements[i], static_cast<const Element*>(from) + i, sizeof(Element));
    }
  }
  Vector x;
  std::memcpy(&x, elements, sizeof x);
  return x;
}
template <class Element>
TPU_EMULATED void masked_store(void* to, uint32_t mask, __m512i x) {
  constexpr unsigned kCount = sizeof x / sizeof(Element);
  Element elements[kCount];
  std::memcpy(elements, &x, sizeof x);
  for (unsigned i = 0; i < kCount; ++i) {
    if ((mask >> i & 1U) != 0) {
      std::memcpy(static_cast<Element*>(to) + i, &elements[i], sizeof(Element));
    }
  }
}

// ---- widths
TPU_EMULATED __m512i cvtepu16_epi32(__m256i a) {
  const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a));
  const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1));
  return bits_as<__m512i>(whole(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)));
}
// VCVTNEPS2BF16: to nearest even, subnormals to signed zero, NaN quieted and cut; not by MXCSR.
TPU_EMULATED __m256i cvtneps_pbh(__m512 a) {
  uint16_t rounded[16];
  const auto words = bits_as<U32x16>(a);
  for (unsigned i = 0; i < 16; ++i) {
    const uint32_t x = words[i];
    const uint32_t exponent = x & 0x7f800000U;
    uint32_t upper = (x + 0x7fffU + (x >> 16 & 1U)) >> 16;
    if (exponent == 0) {
      upper = x >> 16 & 0x8000U;
    } else if (exponent == 0x7f800000U) {
      upper = x >> 16 | ((x & 0x007fffffU) != 0 ? 0x40U : 0U);
    }
    rounded[i] = static_cast<uint16_t>(upper);
  }
  __m256i result;
  std::memcpy(&result, rounded, sizeof result);
  return result;
}
// VCVTNE2PS2BF16: those of `low` in the lower half.
TPU_EMULATED __m512i cvtne2ps_pbh(__m512 high, __m512 low) {
  return bits_as<__m512i>(
      whole(_mm256_castsi256_ps(cvtneps_pbh(low)), _mm256_castsi256_ps(cvtneps_pbh(high))));
}

// ---- 16-bit words
TPU_EMULATED __m512i permutexvar_epi16(__m512i order, __m512i a) {
  typedef uint16_t U16x32 __attribute__((vector_size(64)));
  const auto at = bits_as<U16x32>(order);
  const auto from = bits_as<U16x32>(a);
  U16x32 to{};
  for (unsigned i = 0; i < 32; ++i) {
    to[i] = from[at[i] % 32];
  }
  return bits_as<__m512i>(to);
}
TPU_EMULATED __m512i inserti64x4(__m512i a, __m256i b, int half) {
  Halves h = halves(bits_as<__m512>(a));
  (half == 0 ? h.low : h.high) = _mm256_castsi256_ps(b);
  return bits_as<__m512i>(h);
}
TPU_EMULATED __m512i castsi256_si512(__m256i a) {
  return bits_as<__m512i>(whole(_mm256_castsi256_ps(a), _mm256_setzero_ps()));
}

// ---- places of words: within each 128 bits, or of 128 bits as a whole
typedef int64_t I64x8 __attribute__((vector_size(64)));
TPU_EMULATED __m512i unpacklo_epi32(__m512i a, __m512i b) {
  return bits_as<__m512i>(
      __builtin_shuffle(bits_as<I32x16>(a), bits_as<I32x16>(b),
                        I32x16{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}));
}
TPU_EMULATED __m512i unpackhi_epi32(__m512i a, __m512i b) {
  return bits_as<__m512i>(
      __builtin_shuffle(bits_as<I32x16>(a), bits_as<I32x16>(b),
                        I32x16{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31}));
}
TPU_EMULATED __m512i unpacklo_epi64(__m512i a, __m512i b) {
  return bits_as<__m512i>(
      __builtin_shuffle(bits_as<I64x8>(a), bits_as<I64x8>(b), I64x8{0, 8, 2, 10, 4, 12, 6, 14}));
}
TPU_EMULATED __m512i unpackhi_epi64(__m512i a, __m512i b) {
  return bits_as<__m512i>(
      __builtin_shuffle(bits_as<I64x8>(a), bits_as<I64x8>(b), I64x8{1, 9, 3, 11, 5, 13, 7, 15}));
}
template <int kOrder>
TPU_EMULATED __m512i shuffle_i32x4(__m512i a, __m512i b) {
  struct Quarters {
    __m128i at[4];
  };
  const auto x = bits_as<Quarters>(a), y = bits_as<Quarters>(b);
  return bits_as<__m512i>(Quarters{
      {x.at[kOrder & 3], x.at[kOrder >> 2 & 3], y.at[kOrder >> 4 & 3], y.at[kOrder >> 6 & 3]}});
}

// VDPBF16PS: a fused multiply-add of the upper halves, then one of the lower, each to nearest even
// with subnormals as zeros on both sides, whatever MXCSR says.
TPU_EMULATED __m512 dpbf16_ps(__m512 sum, __m512i a, __m512i b) {
  constexpr unsigned kRoundNearest = 0x1f80U;
  constexpr unsigned kFlush = 0x8040U;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kRoundNearest | kFlush);
  const __m512i upper = set1_epi32(static_cast<int>(0xffff0000U));
  __m512 high = fmadd_ps(bits_as<__m512>(a & upper), bits_as<__m512>(b & upper), sum);
  __asm__ volatile("" : "+m"(high));  // between the two writes of MXCSR
  __m512 both =
      fmadd_ps(bits_as<__m512>(slli_epi32(a, 16)), bits_as<__m512>(slli_epi32(b, 16)), high);
  __asm__ volatile("" : "+m"(both));
  _mm_setcsr(before);
  return both;
}

#undef TPU_EMULATED

}  // namespace tpu::emulation

// Without optimisation some intrinsics are macros already.
#undef _mm512_slli_epi32
#undef _mm512_inserti64x4
#undef _mm512_srli_epi32
#undef _mm512_cmp_ps_mask
#undef _mm512_mask_cmp_ps_mask
#undef _mm512_shuffle_i32x4

#define _mm512_setzero_ps tpu::emulation::setzero_ps
#define _mm512_set1_ps tpu::emulation::set1_ps
#define _mm512_load_ps tpu::emulation::load_ps
#define _mm512_loadu_ps tpu::emulation::loadu_ps
#define _mm512_storeu_ps tpu::emulation::storeu_ps
#define _mm512_storeu_si512(to, x) tpu::emulation::storeu_ps(to, _mm512_castsi512_ps(x))
#define _mm512_add_ps tpu::emulation::add_ps
#define _mm512_mul_ps tpu::emulation::mul_ps
#define _mm512_fmadd_ps tpu::emulation::fmadd_ps
#define _mm512_maskz_sqrt_ps tpu::emulation::maskz_sqrt_ps
#define _mm512_cmp_ps_mask(a, b, predicate) tpu::emulation::cmp_ps_mask<predicate>(a, b)
#define _mm512_mask_cmp_ps_mask(mask, a, b, predicate) \
  static_cast<__mmask16>((mask)&tpu::emulation::cmp_ps_mask<predicate>(a, b))
#define _mm512_castps_si512 tpu::emulation::bits_as<__m512i>
#define _mm512_castsi512_ps tpu::emulation::bits_as<__m512>
#define _mm512_set1_epi32 tpu::emulation::set1_epi32
#define _mm512_or_si512 tpu::emulation::or_si512
#define _mm512_and_si512 tpu::emulation::and_si512
#define _mm512_add_epi32 tpu::emulation::add_epi32
#define _mm512_srli_epi32 tpu::emulation::srli_epi32
#define _mm512_slli_epi32 tpu::emulation::slli_epi32
#define _mm512_mask_set1_epi32 tpu::emulation::mask_set1_epi32
#define _mm512_test_epi32_mask tpu::emulation::test_epi32_mask
#define _mm512_cmpeq_epi32_mask tpu::emulation::cmpeq_epi32_mask
#define _mm512_cmpeq_epi16_mask tpu::emulation::cmpeq_epi16_mask
#define _mm512_maskz_loadu_ps tpu::emulation::masked_load<__m512, float>
#define _mm512_maskz_loadu_epi32 tpu::emulation::masked_load<__m512i, int32_t>
#define _mm256_maskz_loadu_epi16 tpu::emulation::masked_load<__m256i, uint16_t>
#define _mm512_maskz_loadu_epi16 tpu::emulation::masked_load<__m512i, uint16_t>
#define _mm512_mask_storeu_epi32 tpu::emulation::masked_store<uint32_t>
#define _mm512_mask_storeu_epi16 tpu::emulation::masked_store<uint16_t>
#define _mm512_mask_storeu_ps(to, mask, x) \
  tpu::emulation::masked_store<float>(to, mask, _mm512_castps_si512(x))
#define _mm512_store_ps tpu::emulation::store_ps
#define _mm512_store_si512(to, x) tpu::emulation::store_ps(to, _mm512_castsi512_ps(x))
#define _mm512_stream_ps tpu::emulation::store_ps
#define _mm512_unpacklo_epi32 tpu::emulation::unpacklo_epi32
#define _mm512_unpackhi_epi32 tpu::emulation::unpackhi_epi32
#define _mm512_unpacklo_epi64 tpu::emulation::unpacklo_epi64
#define _mm512_unpackhi_epi64 tpu::emulation::unpackhi_epi64
#define _mm512_shuffle_i32x4(a, b, order) tpu::emulation::shuffle_i32x4<order>(a, b)
#define _mm512_cvtepu16_epi32 tpu::emulation::cvtepu16_epi32
#define _mm512_cvtneps_pbh tpu::emulation::cvtneps_pbh
#define _mm512_cvtne2ps_pbh tpu::emulation::cvtne2ps_pbh
#define _mm512_permutexvar_epi16 tpu::emulation::permutexvar_epi16
#define _mm512_inserti64x4 tpu::emulation::inserti64x4
#define _mm512_castsi256_si512 tpu::emulation::castsi256_si512
#define _mm512_dpbf16_ps tpu::emulation::dpbf16_ps
#define _mm512_setzero_si512() _mm512_castps_si512(tpu::emulation::setzero_ps())
#define _mm512_load_si512(at) _mm512_castps_si512(tpu::emulation::load_ps(at))
// A type of AVX512_BF16 that the compiler has without -mavx512bf16 too, or not, as it likes.
#define __m512bh __m512i
