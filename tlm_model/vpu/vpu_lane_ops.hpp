// Lane-wise operations of the vector unit on vectors of any width: what the instructions of
// spec/isa/vpu.toml mean. For the vpu_ops_*.cpp files only.
#pragma once

#include "arith/trigonometric.hpp"
#if defined(__x86_64__)
#include "vpu/vpu_lanes.hpp"
#else
#include "vpu/vpu_lanes_neon.hpp"
#endif

namespace tpu::model {
namespace {

using T = VectorLanes;
using Functions = spec::Trigonometric<VectorLanes>;

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kExponent = 0x7f800000u;
constexpr uint32_t kNanBits = 0x7fc00000u;

// ---- f32
inline U finish(F r) { return T::select(r == r, T::bits(r), T::splat_u(kNanBits)); }
// Subnormals become zeros of their sign: x * 1 + (-0), which no compiler takes for x.
inline F flush(F x) { return T::fma(x, T::splat(1.0f), T::value(T::splat_u(kSign))); }
inline U flushed(U x) { return T::bits(flush(T::value(x))); }
// NaNs become canonical too.
inline U canonical(U x) { return finish(flush(T::value(x))); }
inline U add_f(U a, U b) { return finish(T::value(a) + T::value(b)); }
inline U sub_f(U a, U b) { return finish(T::value(a) - T::value(b)); }
inline U mul_f(U a, U b) { return finish(T::value(a) * T::value(b)); }
inline U div_f(U a, U b) { return finish(T::value(a) / T::value(b)); }
inline U fma_f(U a, U b, U c) { return finish(T::fma(T::value(a), T::value(b), T::value(c))); }
inline M ordered(U a, U b) {
  return T::both(T::value(a) == T::value(a), T::value(b) == T::value(b));
}
// Equal operands have equal bits after flushing, or are zeros: then the signs decide.
inline U min_f(U a, U b) {
  const U low = T::select(T::value(a) < T::value(b), a, b);
  const U r = T::select(T::value(a) == T::value(b), a | b, low);
  return T::select(ordered(a, b), flushed(r), T::splat_u(kNanBits));
}
inline U max_f(U a, U b) {
  const U high = T::select(T::value(a) > T::value(b), a, b);
  const U r = T::select(T::value(a) == T::value(b), a & b, high);
  return T::select(ordered(a, b), flushed(r), T::splat_u(kNanBits));
}
inline U abs_f(U a) { return a & kMagnitude; }
inline U neg_f(U a) { return a ^ kSign; }
inline U sign_f(U a) {
  const U c = canonical(a);
  const U one = (c & kSign) | 0x3f800000u;
  return T::select((c & kMagnitude) == U{}, c, T::select(c == T::splat_u(kNanBits), c, one));
}
// Rounds |a| to an integer, ties to even, in f32 adds; numbers from 2^23 on are integers.
inline F round_magnitude(F magnitude) {
  const F rounded = (magnitude + 8388608.0f) - 8388608.0f;
  return T::select(magnitude < T::splat(8388608.0f), rounded, magnitude);
}
inline U with_sign(F magnitude, U sign) {
  return (T::bits(magnitude) & kMagnitude) | (sign & kSign);
}
inline U keep_nan(U a, U r) { return T::select(a == T::splat_u(kNanBits), a, r); }
inline U round_rne_f(U a) {
  const U c = canonical(a);
  return keep_nan(c, with_sign(round_magnitude(T::value(c & kMagnitude)), c));
}
inline U round_afz_f(U a) {
  const U c = canonical(a);
  const F m = T::value(c & kMagnitude);
  const F nearest = round_magnitude(m);
  const F down = nearest - T::select(nearest > m, T::splat(1.0f), T::splat(0.0f));
  const F up = T::select(m - down >= T::splat(0.5f), T::splat(1.0f), T::splat(0.0f));
  return keep_nan(c, with_sign(down + up, c));
}
inline U floor_f(U a) {
  const U c = canonical(a);
  const F x = T::value(c);
  const F near = T::value(with_sign(round_magnitude(T::value(c & kMagnitude)), c));
  const F r = near - T::select(near > x, T::splat(1.0f), T::splat(0.0f));
  return keep_nan(c, with_sign(r, c));
}
inline U ceil_f(U a) {
  const U c = canonical(a);
  const F x = T::value(c);
  const F near = T::value(with_sign(round_magnitude(T::value(c & kMagnitude)), c));
  const F r = near + T::select(near < x, T::splat(1.0f), T::splat(0.0f));
  return keep_nan(c, with_sign(r, c));
}
// Rounds to bfloat16 in the upper half of the word, unless it holds one already; a NaN becomes
// 0x7fc00000.
inline U rbf16(U a) {
  const U c = canonical(a);
  const U rounded = (c + 0x7fffu + ((c >> 16u) & 1u)) & 0xffff0000u;
  return T::select((a & 0xffffu) == U{}, a, keep_nan(c, rounded));
}
inline U sqrt_f(U a) { return finish(T::sqrt(T::value(a))); }
inline U rsqrt_f(U a) { return T::bits(Functions::rsqrt(T::value(a))); }
inline U exp_f(U a) { return T::bits(Functions::exp(T::value(a))); }
inline U log_f(U a) { return T::bits(Functions::log(T::value(a))); }
inline U tanh_f(U a) { return T::bits(Functions::tanh(T::value(a))); }
inline U logistic_f(U a) { return T::bits(Functions::logistic(T::value(a))); }
inline U expm1_f(U a) { return T::bits(Functions::expm1(T::value(a))); }
inline U log1p_f(U a) { return T::bits(Functions::log1p(T::value(a))); }
inline U sin_f(U a) { return T::bits(Functions::sin(T::value(a))); }
inline U cos_f(U a) { return T::bits(Functions::cos(T::value(a))); }
inline U tan_f(U a) { return T::bits(Functions::tan(T::value(a))); }
inline U cbrt_f(U a) { return T::bits(Functions::cbrt(T::value(a))); }
inline U erf_f(U a) { return T::bits(Functions::erf(T::value(a))); }
inline U atan2_f(U a, U b) { return T::bits(Functions::atan2(T::value(a), T::value(b))); }
inline U pow_f(U a, U b) { return T::bits(Functions::pow(T::value(a), T::value(b))); }

// ---- comparisons: `Order` is a VpuCompare
template <int Order, typename V>
inline U compare(V a, V b) {
  M m;
  if constexpr (Order == 0) {
    m = a == b;
  } else if constexpr (Order == 1) {
    m = a != b;
  } else if constexpr (Order == 2) {
    m = a < b;
  } else if constexpr (Order == 3) {
    m = a <= b;
  } else if constexpr (Order == 4) {
    m = a > b;
  } else {
    m = a >= b;
  }
  return T::as_unsigned(m) & 1u;
}

// ---- i32
inline U select_u(U mask, U a, U b) { return T::select(mask != U{}, a, b); }
inline U add_i(U a, U b) { return a + b; }
inline U sub_i(U a, U b) { return a - b; }
inline U mul_i(U a, U b) { return a * b; }
inline U and_i(U a, U b) { return a & b; }
inline U or_i(U a, U b) { return a | b; }
inline U xor_i(U a, U b) { return a ^ b; }
inline U shl(U a, U n) { return T::select(n < T::splat_u(32), a << (n & 31u), U{}); }
inline U shr(U a, U n) { return T::select(n < T::splat_u(32), a >> (n & 31u), U{}); }
inline U sar(U a, U n) {
  const U amount = T::select(n < T::splat_u(31), n, T::splat_u(31));
  return T::as_unsigned(T::as_signed(a) >> T::as_signed(amount));
}
inline U min_s(U a, U b) { return T::select(T::as_signed(a) < T::as_signed(b), a, b); }
inline U max_s(U a, U b) { return T::select(T::as_signed(a) > T::as_signed(b), a, b); }
inline U min_u(U a, U b) { return T::select(a < b, a, b); }
inline U max_u(U a, U b) { return T::select(a > b, a, b); }
inline U mulhi_u(U a, U b) {
  const U al = a & 0xffffu, ah = a >> 16u, bl = b & 0xffffu, bh = b >> 16u;
  const U middle = ah * bl + ((al * bl) >> 16u);
  const U other = al * bh + (middle & 0xffffu);
  return ah * bh + (middle >> 16u) + (other >> 16u);
}
inline U not_i(U a) { return ~a; }
inline U neg_i(U a) { return U{} - a; }
inline U abs_i(U a) { return T::select((a & kSign) != U{}, U{} - a, a); }
inline U sign_i(U a) {
  const U one = T::select(a != U{}, T::splat_u(1), U{});
  return one | T::sra(a, 31);
}
inline U popcnt(U a) {
  a = a - ((a >> 1u) & 0x55555555u);
  a = (a & 0x33333333u) + ((a >> 2u) & 0x33333333u);
  a = (a + (a >> 4u)) & 0x0f0f0f0fu;
  return (a * 0x01010101u) >> 24u;
}
inline U clz(U a) {
  a |= a >> 1u;
  a |= a >> 2u;
  a |= a >> 4u;
  a |= a >> 8u;
  a |= a >> 16u;
  return T::splat_u(32) - popcnt(a);
}

// ---- conversions
inline U f2i(U a) {
  const F x = T::value(a);
  const M high = x >= T::splat(2147483648.0f);
  const M low = x < T::splat(-2147483648.0f);
  const M inside = T::both(x >= T::splat(-2147483648.0f), x < T::splat(2147483648.0f));
  const U r = T::trunc(T::select(inside, x, T::splat(0.0f)));
  return T::select(high, T::splat_u(0x7fffffffu), T::select(low, T::splat_u(kSign), r));
}
inline U f2u(U a) {
  const F x = T::value(a);
  const M big = x >= T::splat(2147483648.0f);
  const M overflow = x >= T::splat(4294967296.0f);
  const M positive = T::both(x > T::splat(0.0f), x < T::splat(4294967296.0f));
  const F part = T::select(big, x - 2147483648.0f, x);
  const U r = T::trunc(T::select(positive, part, T::splat(0.0f)));
  const U joined = T::select(T::both(big, positive), r | kSign, r);
  return T::select(overflow, T::splat_u(0xffffffffu), joined);
}
inline U i2f(U a) { return T::bits(T::to_float(a)); }
inline U u2f(U a) {  // both halves are exact, one rounding
  return T::bits(T::to_float(a >> 16u) * 65536.0f + T::to_float(a & 0xffffu));
}

}  // namespace
}  // namespace tpu::model
