// Lane type over compiler vectors of kVpuWidth words. Included by the vpu_ops_*.cpp files only,
// each of which defines TPU_VPU_WIDTH and is compiled for its instruction set; everything is in an
// unnamed namespace, so that no code of one instruction set can stand in for that of another.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tpu::model {
namespace {

constexpr int kVpuWidth = TPU_VPU_WIDTH;

struct VectorLanes {
  typedef float F __attribute__((vector_size(4 * kVpuWidth)));
  typedef uint32_t U __attribute__((vector_size(4 * kVpuWidth)));
  typedef int32_t I __attribute__((vector_size(4 * kVpuWidth)));
  using M = I;

  static F splat(float value) { return F{} + value; }
  static U splat_u(uint32_t value) { return U{} + value; }
  static F select(M m, F a, F b) { return m ? a : b; }
  static U select(M m, U a, U b) { return m ? a : b; }
  static M both(M a, M b) { return a & b; }
  static M either(M a, M b) { return a | b; }
  static bool any(M m) {
#if TPU_VPU_WIDTH == 16
    return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(m), reinterpret_cast<__m512i>(m)) != 0;
#elif TPU_VPU_WIDTH == 8
    return _mm256_movemask_epi8(reinterpret_cast<__m256i>(m)) != 0;
#else
    int seen = 0;
    for (int i = 0; i < kVpuWidth; ++i) {
      seen |= m[i];
    }
    return seen != 0;
#endif
  }
  static U bits(F x) { return reinterpret_cast<U>(x); }
  static F value(U x) { return reinterpret_cast<F>(x); }
  static I as_signed(U x) { return reinterpret_cast<I>(x); }
  static U as_unsigned(I x) { return reinterpret_cast<U>(x); }
  static U sra(U x, int n) { return as_unsigned(as_signed(x) >> n); }
  static F to_float(U x) { return __builtin_convertvector(as_signed(x), F); }
  static U trunc(F x) { return as_unsigned(__builtin_convertvector(x, I)); }
  static F fma(F a, F b, F c) {
#if TPU_VPU_WIDTH == 16
    return reinterpret_cast<F>(_mm512_fmadd_ps(
        reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif TPU_VPU_WIDTH == 8
    return reinterpret_cast<F>(_mm256_fmadd_ps(
        reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
    F r;
    for (int i = 0; i < kVpuWidth; ++i) {
      r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    }
    return r;
#endif
  }
  static F sqrt(F x) {
#if TPU_VPU_WIDTH == 16
    return reinterpret_cast<F>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(x)));
#elif TPU_VPU_WIDTH == 8
    return reinterpret_cast<F>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
    F r;
    for (int i = 0; i < kVpuWidth; ++i) {
      r[i] = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x[i])));
    }
    return r;
#endif
  }
};

using F = VectorLanes::F;
using U = VectorLanes::U;
using I = VectorLanes::I;
using M = VectorLanes::M;

typedef uint32_t UnalignedU __attribute__((vector_size(4 * kVpuWidth), aligned(4), may_alias));

inline U load_lanes(const uint32_t* p) { return *reinterpret_cast<const UnalignedU*>(p); }
inline void store_lanes(uint32_t* p, U x) { *reinterpret_cast<UnalignedU*>(p) = x; }

}  // namespace
}  // namespace tpu::model
