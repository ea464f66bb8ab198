// Transcendental functions on single values, in integers only: the same bits as
// the vector unit's, whatever the host's floating-point mode. Slow; for constant folding and tests.
#pragma once

#include <cstdint>

#include "arith/f32.hpp"
#include "arith/trigonometric.hpp"

namespace tpu::spec {

namespace detail {

// A binary32 number whose operators have these semantics.
class LawF32 {
 public:
  constexpr LawF32() = default;
  constexpr LawF32(float value) : bits_(f32_bits(value)) {}  // NOLINT: literals mix with lanes
  static constexpr LawF32 from_bits(uint32_t bits) {
    LawF32 result;
    result.bits_ = bits;
    return result;
  }
  constexpr uint32_t bits() const { return bits_; }

  friend constexpr LawF32 operator+(LawF32 a, LawF32 b) {
    return from_bits(f32_add_bits(a.bits_, b.bits_));
  }
  friend constexpr LawF32 operator-(LawF32 a, LawF32 b) {
    return from_bits(f32_sub_bits(a.bits_, b.bits_));
  }
  friend constexpr LawF32 operator*(LawF32 a, LawF32 b) {
    return from_bits(f32_mul_bits(a.bits_, b.bits_));
  }
  friend constexpr LawF32 operator/(LawF32 a, LawF32 b) {
    return from_bits(f32_div_bits(a.bits_, b.bits_));
  }
  friend constexpr bool operator==(LawF32 a, LawF32 b) { return a.ordered() == b.ordered(); }
  friend constexpr bool operator!=(LawF32 a, LawF32 b) { return a.ordered() != b.ordered(); }
  friend constexpr bool operator<(LawF32 a, LawF32 b) { return a.ordered() < b.ordered(); }
  friend constexpr bool operator<=(LawF32 a, LawF32 b) { return a.ordered() <= b.ordered(); }
  friend constexpr bool operator>(LawF32 a, LawF32 b) { return a.ordered() > b.ordered(); }
  friend constexpr bool operator>=(LawF32 a, LawF32 b) { return a.ordered() >= b.ordered(); }

 private:
  // With subnormals read as zero; host comparisons of what is left do not depend on its mode.
  constexpr float ordered() const { return f32_from_bits(f32_canonical(bits_)); }

  uint32_t bits_ = 0;
};

struct LawLane {
  using F = LawF32;
  using U = uint32_t;
  using M = bool;

  static constexpr F splat(float value) { return value; }
  static constexpr F select(bool m, F a, F b) { return m ? a : b; }
  static constexpr U select(bool m, U a, U b) { return m ? a : b; }
  static constexpr bool both(bool a, bool b) { return a && b; }
  static constexpr bool either(bool a, bool b) { return a || b; }
  static constexpr bool any(bool m) { return m; }
  static constexpr U bits(F x) { return x.bits(); }
  static constexpr F value(U x) { return F::from_bits(x); }
  static constexpr U sra(U x, int n) { return static_cast<U>(static_cast<int32_t>(x) >> n); }
  static constexpr F to_float(U x) { return static_cast<float>(static_cast<int32_t>(x)); }
  static constexpr U trunc(F x) {
    return static_cast<U>(static_cast<int32_t>(f32_from_bits(x.bits())));
  }
  static constexpr F fma(F a, F b, F c) {
    return F::from_bits(f32_fma_bits(a.bits(), b.bits(), c.bits()));
  }
  static constexpr F sqrt(F x) { return F::from_bits(f32_sqrt_bits(x.bits())); }
};

using LawFunctions = Trigonometric<LawLane>;

}  // namespace detail

inline uint32_t f32_rsqrt_bits(uint32_t x) {
  return detail::LawFunctions::rsqrt(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_exp_bits(uint32_t x) {
  return detail::LawFunctions::exp(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_log_bits(uint32_t x) {
  return detail::LawFunctions::log(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_log1p_bits(uint32_t x) {
  return detail::LawFunctions::log1p(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_expm1_bits(uint32_t x) {
  return detail::LawFunctions::expm1(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_tanh_bits(uint32_t x) {
  return detail::LawFunctions::tanh(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_logistic_bits(uint32_t x) {
  return detail::LawFunctions::logistic(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_sin_bits(uint32_t x) {
  return detail::LawFunctions::sin(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_cos_bits(uint32_t x) {
  return detail::LawFunctions::cos(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_tan_bits(uint32_t x) {
  return detail::LawFunctions::tan(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_cbrt_bits(uint32_t x) {
  return detail::LawFunctions::cbrt(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_erf_bits(uint32_t x) {
  return detail::LawFunctions::erf(detail::LawF32::from_bits(x)).bits();
}
inline uint32_t f32_atan2_bits(uint32_t y, uint32_t x) {
  return detail::LawFunctions::atan2(detail::LawF32::from_bits(y), detail::LawF32::from_bits(x))
      .bits();
}
inline uint32_t f32_pow_bits(uint32_t x, uint32_t y) {
  return detail::LawFunctions::pow(detail::LawF32::from_bits(x), detail::LawF32::from_bits(y))
      .bits();
}

}  // namespace tpu::spec
