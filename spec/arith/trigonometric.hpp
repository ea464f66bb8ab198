// sin, cos, tan and atan2; see transcendental.hpp for the lane type T and the
// rules. Arguments of sin, cos and tan are reduced exactly, whatever their size: below 2^16 by
// subtracting n * pi/2 with pi/2 in three parts, from there on with the 96 bits of 2/pi that matter
// for the argument's exponent (what stands left of them are whole turns).
#pragma once

#include <array>
#include <cstdint>

#include "arith/transcendental.hpp"

namespace tpu::spec {

template <class T>
struct Trigonometric : Transcendental<T> {
  using Base = Transcendental<T>;
  using typename Base::F;
  using typename Base::M;
  using typename Base::U;

  static F sin(F x) {
    const Angle r = reduce_angle(abs(x));
    const F y = select((r.quadrant & 1u) != U{}, cos_core(r), sin_core(r));
    return special(x, flip_sign(y, (r.quadrant << 30u) ^ T::bits(x)));
  }

  static F cos(F x) {
    const Angle r = reduce_angle(abs(x));
    const F y = select((r.quadrant & 1u) != U{}, sin_core(r), cos_core(r));
    return special(x, flip_sign(y, (r.quadrant + 1u) << 30u));
  }

  static F tan(F x) {
    const Angle r = reduce_angle(abs(x));
    const F s = sin_core(r);
    const F c = cos_core(r);
    const M odd = (r.quadrant & 1u) != U{};
    const F y = select(odd, c, s) / select(odd, s, c);
    return special(x, flip_sign(y, (r.quadrant << 31u) ^ T::bits(x)));
  }

  static F atan2(F y, F x) {
    const F ax = abs(x), ay = abs(y);
    const M swapped = ay > ax;
    const F large = select(swapped, ay, ax);
    const F small = select(swapped, ax, ay);
    F t = small / large;
    F t_low = T::fma(k(0.0f) - t, large, small) / large;
    t_low = select(T::both(large<k(kInf), large> k(0.0f)), t_low, k(0.0f));
    t = select(large == k(0.0f), k(0.0f), select(small == k(kInf), k(1.0f), t));
    // From tan(pi/8) on: atan(t) = pi/4 + atan((t - 1) / (t + 1)).
    const M upper = t > k(0.41421356f);
    const F numerator = select(upper, t - 1.0f, t);
    const F denominator = select(upper, t + 1.0f, k(1.0f));
    const F lost = select(upper, t - (denominator - 1.0f), k(0.0f));
    const F u = numerator / denominator;
    F rest = T::fma(k(0.0f) - u, denominator, numerator);
    rest = T::fma(k(0.0f) - u, lost, rest);
    const F u_low = rest * T::fma(denominator, k(-0.35f), k(1.2f));  // about rest / denominator
    // t_low / (1 + t^2), for which a line is enough.
    const F low = T::fma(t_low, T::fma(t, k(-0.5f), k(1.0f)), select(upper, u_low, k(0.0f)));
    const F z = u * u;
    F p = T::fma(k(4.747379944e-2f), z, k(-8.477992564e-2f));
    p = T::fma(p, z, k(1.104502305e-1f));
    p = T::fma(p, z, k(-1.428203732e-1f));
    p = T::fma(p, z, k(1.999990493e-1f));
    p = T::fma(p, z, k(-3.333333135e-1f));
    const F tail = T::fma(p * z, u, low);
    // Octants: the result is n * pi/4 plus or minus u + tail.
    const M negative = (T::bits(x) >> 31u) != U{};
    F n = select(upper, k(1.0f), k(0.0f));
    n = select(swapped, k(2.0f) - n, n);
    n = select(negative, k(4.0f) - n, n);
    const U flip = (Base::one_if(swapped) ^ Base::one_if(negative)) << 31u;
    const F whole = n * kQuarterPi;
    const F whole_low = T::fma(n, k(kQuarterPi), k(0.0f) - whole) + n * kQuarterPiLow;
    const F near = flip_sign(u, flip) + (flip_sign(tail, flip) + whole_low);
    const F r = Base::copy_sign(select(n == k(0.0f), u + tail, whole + near), y);
    return Base::finish(select(T::both(x == x, y == y), r, k(Base::kNan)));
  }

 private:
  struct Angle {
    F high, low;  // in [-pi/4, pi/4] and a little
    U quadrant;   // the low two bits count
  };

  static constexpr float kInf = Base::kInf;
  static constexpr float kHalfPi = 1.570796370506f;
  static constexpr float kHalfPiLow = -4.371138828674e-8f;
  static constexpr float kHalfPiLowest = -1.715124510006e-15f;
  static constexpr float kQuarterPi = 7.853981852531e-1f;
  static constexpr float kQuarterPiLow = -2.185569414337e-8f;

  static F k(float value) { return Base::k(value); }
  static F select(M m, F a, F b) { return T::select(m, a, b); }
  static U select(M m, U a, U b) { return T::select(m, a, b); }
  static F abs(F x) { return Base::abs(x); }
  static F flip_sign(F x, U sign) { return T::value(T::bits(x) ^ (sign & 0x80000000u)); }
  static F special(F x, F y) { return Base::finish(select(abs(x) < k(kInf), y, k(Base::kNan))); }

  static F sin_core(const Angle& r) {
    const F z = r.high * r.high;
    F p = T::fma(k(2.718302085e-6f), z, k(-1.983933325e-4f));
    p = T::fma(p, z, k(8.333329111e-3f));
    p = T::fma(p, z, k(-1.666666716e-1f));
    const F low = T::fma(r.low * -0.5f, z, r.low);
    return r.high + T::fma(p, z * r.high, low);
  }
  static F cos_core(const Angle& r) {
    const F z = r.high * r.high;
    F p = T::fma(k(2.443835729e-5f), z, k(-1.388736651e-3f));
    p = T::fma(p, z, k(4.166664556e-2f));
    const F half = z * 0.5f;
    const F w = k(1.0f) - half;
    const F lost = (k(1.0f) - w) - half;
    return w + (lost + T::fma(p, z * z, k(0.0f) - r.high * r.low));
  }

  static Angle reduce_angle(F a) {
    const M huge = T::both(a >= k(65536.0f), a < k(kInf));
    Angle r = reduce_small(select(huge, k(0.0f), a));
    if (T::any(huge)) {  // lanes of the other kind do not look at it
      const Angle h = reduce_huge(a);
      r = {select(huge, h.high, r.high), select(huge, h.low, r.low),
           select(huge, h.quadrant, r.quadrant)};
    }
    return r;
  }

  static Angle reduce_small(F a) {
    const F t = T::fma(a, k(6.366197466850e-1f), k(Base::kRound));
    const F n = t - Base::kRound;
    const F r = T::fma(n, k(-kHalfPi), a);  // exact
    const F p = n * kHalfPiLow;
    const F p_low = T::fma(n, k(kHalfPiLow), k(0.0f) - p);
    const F s = r - p;
    const F back = s - r;
    const F s_low = (r - (s - back)) - (p + back);  // what the difference lost
    const F low = T::fma(n, k(-kHalfPiLowest), s_low - p_low);
    return normalised(s, low, T::bits(t) - 0x4b400000u);
  }

  static Angle normalised(F high, F low, U quadrant) {
    const F sum = high + low;
    return {sum, low - (sum - high), quadrant};
  }

  // Bits of 2/pi behind 32 zeros: bit i has the weight 2^(31 - i).
  static constexpr std::array<uint32_t, 8> kTwoOverPi = {0x00000000u, 0xa2f9836eu, 0x4e441529u,
                                                         0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
                                                         0x3c439041u, 0xfe5163abu};

  // a = m * 2^s with a 24-bit m. The window of 96 bits of 2/pi starts at bit 30 + s, so that
  // m * window / 2^94, taken modulo 4, counts quarter turns.
  static Angle reduce_huge(F a) {
    const U bits = T::bits(a);
    const U m = (bits & 0x7fffffu) | 0x800000u;
    const U start = (bits >> 23u) - 120u;
    const U word = start >> 5u;
    const U shift = start & 31u;
    U w[4];
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = U{} + kTwoOverPi[i];
      for (uint32_t j = 1; j < 5; ++j) {
        w[i] = select(word == U{} + j, U{} + kTwoOverPi[i + j], w[i]);
      }
    }
    const auto window = [&](size_t i) {  // the second shift is split: 32 - 0 is too far
      return (w[i] << shift) | ((w[i + 1] >> 1u) >> (U{} + 31u - shift));
    };
    const U a2 = window(0), a1 = window(1), a0 = window(2);
    const U carry = Base::mul_high(m, a0);
    const U p1 = m * a1 + carry;
    const U p2 = m * a2 + Base::mul_high(m, a1) + Base::one_if(p1 < carry);
    // 2 bits of quadrant, 62 bits of fraction; the nearest quadrant leaves a signed fraction.
    U high = (p2 << 2u) | (p1 >> 30u);
    U low = p1 << 2u;
    const M above = (high >> 31u) != U{};
    const U quadrant = (p2 >> 30u) + Base::one_if(above);
    const U negated = U{} - low;
    high = select(above, ~high + Base::one_if(low == U{}), high);
    low = select(above, negated, low);
    // Three pieces of at most 24 bits are exact as floats.
    const F c0 = T::to_float(high >> 8u) * 0x1p-24f;
    const F c1 = T::to_float(((high & 0xffu) << 16u) | (low >> 16u)) * 0x1p-48f;
    const F c2 = T::to_float(low & 0xffffu) * 0x1p-64f;
    const F f = c0 + c1;
    const F f_low = (c1 - (f - c0)) + c2;
    const F angle = f * kHalfPi;
    F angle_low = T::fma(f, k(kHalfPi), k(0.0f) - angle);
    angle_low = T::fma(f, k(kHalfPiLow), T::fma(f_low, k(kHalfPi), angle_low));
    const U sign = select(above, U{} + 0x80000000u, U{});
    return normalised(flip_sign(angle, sign), flip_sign(angle_low, sign), quadrant);
  }
};

}  // namespace tpu::spec
