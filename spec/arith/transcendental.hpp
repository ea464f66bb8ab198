// Transcendental functions: fixed sequences of f32 add, mul, fma, divide and
// square root, so that every implementation of those five gives the same bits at any SIMD width.
// `Transcendental<T>` is written once over a lane type T; spec/arith/transcendental_scalar.hpp has
// the one on integers, the vector unit's model those on SIMD registers (host in flush mode).
// Largest errors: docs/numerics.md. Results below the smallest normal number are zeros, NaN results
// are canonical.
//
// T provides the types F (f32 lanes), U (uint32), I (int32), M (result of a comparison) with the
// usual operators, and: splat(float) -> F, fma(F, F, F), sqrt(F), select(M, a, b) for F and U,
// bits(F) -> U, value(U) -> F, sra(U, n) -> U (arithmetic shift), to_float(U) -> F (signed, exact
// below 2^24), trunc(F) -> U (of 0 <= x <= 2^24), both(M, M), either(M, M), any(M) -> bool.
#pragma once

#include <cstdint>

namespace tpu::spec {

template <class T>
struct Transcendental {
  using F = typename T::F;
  using U = typename T::U;
  using M = typename T::M;

  static F rsqrt(F x) { return finish(k(1.0f) / T::sqrt(x)); }

  static F exp(F x) { return finish(select(x == x, exp_core(x), x)); }

  static F log(F x) {
    const Split s = split(T::bits(x));
    F y = log_core(s.mantissa - 1.0f, T::to_float(s.exponent));
    y = select(x == k(kInf), x, y);
    y = select(x == k(0.0f), k(-kInf), y);
    return finish(select(T::both(x >= k(0.0f), x == x), y, k(kNan)));
  }

  static F log1p(F x) {
    // u + c is exactly 1 + x; c enters the mantissa's distance from 1.
    const F u = x + 1.0f;
    const F back = u - 1.0f;
    const F c = (k(1.0f) - (u - back)) + (x - back);
    const Split s = split(T::bits(u));
    const F exponent = T::to_float(s.exponent);
    const F scale = T::value((U{} + 127u - s.exponent) << 23u);  // 2^-exponent
    const F low = select(exponent < k(60.0f), c * scale, k(0.0f));
    F y = log_core((s.mantissa - 1.0f) + low, exponent);
    y = select(x == k(kInf), x, y);
    y = select(x == k(-1.0f), k(-kInf), y);
    y = select(x == k(0.0f), signed_zero(x), y);
    return finish(select(T::both(x >= k(-1.0f), x == x), y, k(kNan)));
  }

  static F expm1(F x) {
    const F clamped = clamp(x, -18.0f, 89.0f);
    const Reduced r = reduce(clamped);
    const F p = exp_minus_one(r.rest);
    const F half_scale = power_of_two(r.n + (U{} - 1u));
    const F general = T::fma(half_scale, p, half_scale - 0.5f) * 2.0f;
    F y = select(r.n == U{}, p, general);
    y = select(x == k(0.0f), signed_zero(x), y);
    return finish(select(x == x, y, x));
  }

  static F tanh(F x) {
    const F a = abs(x);
    const F z = a * a;
    F p = T::fma(k(-5.70498872745e-3f), z, k(2.06390887954e-2f));
    p = T::fma(p, z, k(-5.37397155531e-2f));
    p = T::fma(p, z, k(1.33314422036e-1f));
    p = T::fma(p, z, k(-3.33332819422e-1f));
    const F small = T::fma(p * z, a, a);
    const F e = exp_core(clamp(a + a, 0.0f, 20.0f));
    const F large = k(1.0f) - k(2.0f) / (e + 1.0f);
    const F y = copy_sign(select(a < k(0.625f), small, large), x);
    return finish(select(x == x, y, x));
  }

  static F logistic(F x) {
    const F z = exp_core(k(0.0f) - abs(x));
    const F numerator = select(x < k(0.0f), z, k(1.0f));
    return finish(select(x == x, numerator / (z + 1.0f), x));
  }

  static F pow(F x, F y) {
    const F a = abs(x);
    const Pair l = log2_pair(a);
    const F high = y * l.high;
    const F low = T::fma(y, l.low, T::fma(y, l.high, k(0.0f) - high));
    const M inside = abs(high) < k(200.0f);
    F r = select(inside, exp2_pair(high, low), select(high > k(0.0f), k(kInf), k(0.0f)));
    // Bases and exponents at which the logarithm says nothing.
    const F to_inf = select(y > k(0.0f), k(kInf), k(0.0f));
    const F to_zero = select(y > k(0.0f), k(0.0f), k(kInf));
    r = select(a == k(0.0f), to_zero, select(a == k(kInf), to_inf, r));
    r = select(abs(y) == k(kInf), select(a > k(1.0f), to_inf, to_zero), r);
    r = select(a == k(1.0f), k(1.0f), r);
    // Sign of a negative base (zero and infinity included).
    const Parity parity = parity_of(y);
    const U sign = T::bits(x) & 0x80000000u;
    r = select(parity.odd, T::value(T::bits(r) | sign), r);
    const M undefined = T::both(T::both(x < k(0.0f), a < k(kInf)), parity.fraction);
    r = select(undefined, k(kNan), r);
    r = select(T::both(x == x, y == y), r, k(kNan));
    r = select(T::either(y == k(0.0f), x == k(1.0f)), k(1.0f), r);
    return finish(r);
  }

  static F cbrt(F x) {
    const F a = abs(x);
    const U bits = T::bits(a);
    // a = m * 2^(3j) with m in [1, 8); the exponent's third by multiplication, exact below 2^16.
    const U third = (((bits >> 23u) + 2u) * 43691u) >> 17u;
    const U j = third - 43u;
    const F m = T::value(bits - ((j * 3u) << 23u));
    F y = T::fma(k(-1.466986723e-2f), m, k(2.680692673e-1f));
    y = T::fma(y, m, k(7.625103593e-1f));  // within 1.6 %
    const F cube = y * y * y;
    y = y * ((cube + m + m) / (cube + cube + m));  // within 2^-17
    const F square = y * y;
    const F rest = T::fma(y, y, k(0.0f) - square);
    const F miss = T::fma(k(0.0f) - rest, y, T::fma(k(0.0f) - square, y, m));  // m - y^3
    y = y + miss / (square * 3.0f);
    y = y * power_of_two(j);
    y = select(a == k(0.0f), k(0.0f), select(a == k(kInf), a, y));
    return finish(select(x == x, copy_sign(y, x), x));
  }

  static F erf(F x) {
    const F a = abs(x);
    const F z = a * a;
    F p = T::fma(k(8.513248031e-5f), z, k(-8.175677503e-4f));
    p = T::fma(p, z, k(5.203863140e-3f));
    p = T::fma(p, z, k(-2.686051093e-2f));
    p = T::fma(p, z, k(1.128371507e-1f));
    p = T::fma(p, z, k(-3.761263490e-1f));
    p = T::fma(p, z, k(1.283791661e-1f));
    const F small = T::fma(p, a, a);
    // 1 - exp(-g), g = -log(1 - erf(a)); from 4 on the result is 1.
    const F b = clamp(a, 0.85f, 4.0f);
    F g = T::fma(k(2.014800339e-5f), b, k(-4.236125969e-4f));
    g = T::fma(g, b, k(4.119041841e-3f));
    g = T::fma(g, b, k(-2.498406917e-2f));
    g = T::fma(g, b, k(1.080735549e-1f));
    g = T::fma(g, b, k(6.335318089e-1f));
    g = T::fma(g, b, k(1.129424930e+0f));
    g = T::fma(g, b, k(-1.562954276e-4f));
    const F large = k(1.0f) - exp_core(k(0.0f) - g);
    const F y = copy_sign(select(a < k(0.875f), small, large), x);
    return finish(select(x == x, y, x));
  }

 protected:
  struct Split {
    F mantissa;  // in [sqrt(1/2), sqrt(2))
    U exponent;  // signed
  };
  struct Reduced {
    F rest;  // |rest| <= ln(2)/2 and a little
    U n;     // signed
  };
  struct Pair {
    F high, low;
  };
  struct Parity {
    M odd, fraction;
  };

  static constexpr float kInf = __builtin_inff();
  static constexpr float kNan = __builtin_nanf("");  // 0x7fc00000
  static constexpr float kRound = 12582912.0f;       // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLn2High = 0.693359375f;    // 9 bits: n * kLn2High is exact
  static constexpr float kLn2Low = -2.12194440e-4f;

  static F k(float value) { return T::splat(value); }
  static F select(M m, F a, F b) { return T::select(m, a, b); }
  static F finish(F r) { return select(r == r, r, k(kNan)); }
  static F abs(F x) { return T::value(T::bits(x) & 0x7fffffffu); }
  static F copy_sign(F magnitude, F sign) {
    return T::value((T::bits(magnitude) & 0x7fffffffu) | (T::bits(sign) & 0x80000000u));
  }
  static F signed_zero(F x) { return T::value(T::bits(x) & 0x80000000u); }
  static F clamp(F x, float low, float high) {
    return select(x < k(low), k(low), select(x > k(high), k(high), x));
  }
  // 2^n for -126 <= n <= 127.
  static F power_of_two(U n) { return T::value((n + 127u) << 23u); }
  // y * 2^n in two steps, so that n may lie outside of the exponent range.
  static F scale(F y, U n) {
    const U half = T::sra(n, 1);
    return y * power_of_two(half) * power_of_two(n - half);
  }

  static Reduced reduce(F x) {
    const F t = T::fma(x, k(1.44269504088896341f), k(kRound));
    const F n = t - kRound;
    const F rest = T::fma(n, k(-kLn2Low), T::fma(n, k(-kLn2High), x));
    return {rest, T::bits(t) - 0x4b400000u};
  }
  static F exp_minus_one(F r) {
    F q = T::fma(k(1.9875691500e-4f), r, k(1.3981999507e-3f));
    q = T::fma(q, r, k(8.3334519073e-3f));
    q = T::fma(q, r, k(4.1665795894e-2f));
    q = T::fma(q, r, k(1.6666665459e-1f));
    q = T::fma(q, r, k(5.0000001201e-1f));
    return T::fma(q, r * r, r);
  }
  static F exp_core(F x) {
    const Reduced r = reduce(clamp(x, -104.0f, 89.0f));
    return scale(exp_minus_one(r.rest) + 1.0f, r.n);
  }

  static Split split(U bits) {
    constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
    const U shifted = bits - kSqrtHalf;
    return {T::value((shifted & 0x7fffffu) + kSqrtHalf), T::sra(shifted, 23)};
  }
  // exponent * ln(2) + log(1 + f)
  static F log_core(F f, F exponent) {
    F p = T::fma(k(7.0376836292e-2f), f, k(-1.1514610310e-1f));
    p = T::fma(p, f, k(1.1676998740e-1f));
    p = T::fma(p, f, k(-1.2420140846e-1f));
    p = T::fma(p, f, k(1.4249322787e-1f));
    p = T::fma(p, f, k(-1.6668057665e-1f));
    p = T::fma(p, f, k(2.0000714765e-1f));
    p = T::fma(p, f, k(-2.4999993993e-1f));
    p = T::fma(p, f, k(3.3333331174e-1f));
    const F z = f * f;
    F y = T::fma(exponent, k(kLn2Low), p * f * z);
    y = T::fma(z, k(-0.5f), y);
    return T::fma(exponent, k(kLn2High), f + y);
  }

  // log2 of a positive normal number to about 2^-30: log(m) = 2 atanh(s), s = (m - 1) / (m + 1).
  static Pair log2_pair(F a) {
    const Split m = split(T::bits(a));
    const F f = m.mantissa - 1.0f;  // exact
    const F d = m.mantissa + 1.0f;
    const F d_low = m.mantissa - (d - 1.0f);
    const F s = f / d;
    const F s_rest = T::fma(k(0.0f) - s, d_low, T::fma(k(0.0f) - s, d, f));
    const F s_low = s_rest / d;
    const F z = s * s;
    F q = T::fma(k(2.0f / 11.0f), z, k(2.0f / 9.0f));
    q = T::fma(q, z, k(2.0f / 7.0f));
    q = T::fma(q, z, k(2.0f / 5.0f));
    q = T::fma(q, z, k(2.0f / 3.0f));
    const F high = s + s;
    const F low = T::fma(q * z, s, s_low + s_low);
    constexpr float kLog2eHigh = 1.44269502162933349609f;
    constexpr float kLog2eLow = 1.92596299112661746887e-8f;
    const F product = high * kLog2eHigh;
    F product_low = T::fma(high, k(kLog2eHigh), k(0.0f) - product);
    product_low = T::fma(high, k(kLog2eLow), product_low);
    product_low = T::fma(low, k(kLog2eHigh), product_low);
    const F log = product + product_low;  // the larger first, in both sums
    const F log_low = product_low - (log - product);
    const F exponent = T::to_float(m.exponent);
    const F sum = exponent + log;
    return {sum, log_low + (log - (sum - exponent))};
  }
  // 2^(high + low) for |high| < 200.
  static F exp2_pair(F high, F low) {
    const F t = high + kRound;
    const F r = (high - (t - kRound)) + low;
    F q = T::fma(k(1.52527338040598e-5f), r, k(1.54035303933816e-4f));
    q = T::fma(q, r, k(1.33335581464284e-3f));
    q = T::fma(q, r, k(9.61812910762848e-3f));
    q = T::fma(q, r, k(5.55041086648216e-2f));
    q = T::fma(q, r, k(2.40226506959101e-1f));
    q = T::fma(q, r, k(6.93147180559945e-1f));
    return scale(T::fma(q, r, k(1.0f)), T::bits(t) - 0x4b400000u);
  }
  static Parity parity_of(F y) {
    const F a = clamp(abs(y), 0.0f, 16777216.0f);  // from there on all numbers are even
    const U n = T::trunc(select(a == a, a, k(0.0f)));
    const F whole = T::to_float(n);
    return {T::both((n & 1u) != U{}, a == whole), a != whole};
  }
  // High 32 bits of the product of two 32-bit numbers.
  static U mul_high(U a, U b) {
    const U al = a & 0xffffu, ah = a >> 16u, bl = b & 0xffffu, bh = b >> 16u;
    const U middle = ah * bl + ((al * bl) >> 16u);
    const U other = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (other >> 16u);
  }
  static U one_if(M m) { return select(m, U{} + 1u, U{}); }
  static U select(M m, U a, U b) { return T::select(m, a, b); }
};

}  // namespace tpu::spec
