// Lane type of aarch64, as vpu_lanes.hpp: compiler vectors of kVpuWidth words, 1 or 4, whose
// products are those of arith/host_f32.hpp. Everything is in an unnamed namespace, as there.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "arith/host_f32.hpp"

namespace tpu::model {
namespace {

constexpr int kVpuWidth = TPU_VPU_WIDTH;

struct VectorLanes {
  typedef float Floats __attribute__((vector_size(4 * kVpuWidth)));
  typedef uint32_t U __attribute__((vector_size(4 * kVpuWidth)));
  typedef int32_t I __attribute__((vector_size(4 * kVpuWidth)));
  using M = I;

  class F {
   public:
    F() = default;
    F(Floats lanes) : lanes_(lanes) {}            // NOLINT: as vectors of the compiler
    F(float value) : lanes_(Floats{} + value) {}  // NOLINT: literals mix with lanes
    Floats lanes() const { return lanes_; }

    friend F operator+(F a, F b) { return a.lanes_ + b.lanes_; }
    friend F operator-(F a, F b) { return a.lanes_ - b.lanes_; }
    friend F operator/(F a, F b) { return a.lanes_ / b.lanes_; }
    friend F operator*(F a, F b) { return checked(a, b, Floats{}, a.lanes_ * b.lanes_); }
    friend M operator==(F a, F b) { return a.lanes_ == b.lanes_; }
    friend M operator!=(F a, F b) { return a.lanes_ != b.lanes_; }
    friend M operator<(F a, F b) { return a.lanes_ < b.lanes_; }
    friend M operator<=(F a, F b) { return a.lanes_ <= b.lanes_; }
    friend M operator>(F a, F b) { return a.lanes_ > b.lanes_; }
    friend M operator>=(F a, F b) { return a.lanes_ >= b.lanes_; }

    static F fma(F a, F b, F c) {
#if TPU_VPU_WIDTH == 4
      return checked(a, b, c,
                     reinterpret_cast<Floats>(vfmaq_f32(reinterpret_cast<float32x4_t>(c.lanes_),
                                                        reinterpret_cast<float32x4_t>(a.lanes_),
                                                        reinterpret_cast<float32x4_t>(b.lanes_))));
#else
      return checked(a, b, c, Floats{__builtin_fmaf(a.lanes_[0], b.lanes_[0], c.lanes_[0])});
#endif
    }

   private:
    // Zeros of products that are not zero may have been flushed too early.
    static F checked(F a, F b, F c, Floats result) {
      const M lost = (result == Floats{}) & (a.lanes_ != Floats{}) & (b.lanes_ != Floats{});
      return any(lost) ? again(a, b, c, result) : F(result);
    }
    [[gnu::noinline]] static F again(F a, F b, F c, Floats result) {
      for (int i = 0; i < kVpuWidth; ++i) {
        if (result[i] == 0.0f) {
          result[i] = spec::detail::fma_from_zero(a.lanes_[i], b.lanes_[i], c.lanes_[i], result[i]);
        }
      }
      return result;
    }

    Floats lanes_;
  };

  static F splat(float value) { return value; }
  static U splat_u(uint32_t value) { return U{} + value; }
  static F select(M m, F a, F b) { return m ? a.lanes() : b.lanes(); }
  static U select(M m, U a, U b) { return m ? a : b; }
  static M both(M a, M b) { return a & b; }
  static M either(M a, M b) { return a | b; }
  static bool any(M m) {
#if TPU_VPU_WIDTH == 4
    return vmaxvq_u32(reinterpret_cast<uint32x4_t>(m)) != 0;
#else
    return m[0] != 0;
#endif
  }
  static U bits(F x) { return reinterpret_cast<U>(x.lanes()); }
  static F value(U x) { return reinterpret_cast<Floats>(x); }
  static I as_signed(U x) { return reinterpret_cast<I>(x); }
  static U as_unsigned(I x) { return reinterpret_cast<U>(x); }
  static U sra(U x, int n) { return as_unsigned(as_signed(x) >> n); }
  static F to_float(U x) { return __builtin_convertvector(as_signed(x), Floats); }
  static U trunc(F x) { return as_unsigned(__builtin_convertvector(x.lanes(), I)); }
  static F fma(F a, F b, F c) { return F::fma(a, b, c); }
  static F sqrt(F x) {
    Floats r = x.lanes();
    for (int i = 0; i < kVpuWidth; ++i) {
      r[i] = __builtin_sqrtf(r[i]);
    }
    return r;
  }
};
static_assert(kVpuWidth == 1 || kVpuWidth == 4);

using F = VectorLanes::F;
using U = VectorLanes::U;
using I = VectorLanes::I;
using M = VectorLanes::M;

typedef uint32_t UnalignedU __attribute__((vector_size(4 * kVpuWidth), aligned(4), may_alias));

inline U load_lanes(const uint32_t* p) { return *reinterpret_cast<const UnalignedU*>(p); }
inline void store_lanes(uint32_t* p, U x) { *reinterpret_cast<UnalignedU*>(p) = x; }

}  // namespace
}  // namespace tpu::model
