// Binary32 arithmetic in integers only: the scalar reference of VPU, MXU,
// compiler folding and RTL. Rules: round to nearest even; subnormal inputs count as zero of their
// sign; a result whose rounded value (exponent unbounded) lies below the smallest normal becomes
// zero of its sign; every NaN result is 0x7fc00000. The host's rounding mode, FTZ/DAZ bits and
// contraction settings have no influence on anything here. Not here: transcendentals (the VPU's
// polynomials are fixed sequences of these operations) and exception flags.
#pragma once

#include <bit>
#include <cstdint>

namespace tpu::spec {

inline constexpr uint32_t kF32SignMask = 0x80000000u;
inline constexpr uint32_t kF32MagnitudeMask = 0x7fffffffu;
inline constexpr uint32_t kF32Infinity = 0x7f800000u;
inline constexpr uint32_t kF32MinNormal = 0x00800000u;
inline constexpr uint32_t kF32CanonicalNan = 0x7fc00000u;

constexpr uint32_t f32_bits(float value) { return std::bit_cast<uint32_t>(value); }
constexpr float f32_from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

constexpr bool f32_is_nan(uint32_t bits) { return (bits & kF32MagnitudeMask) > kF32Infinity; }
constexpr bool f32_is_inf(uint32_t bits) { return (bits & kF32MagnitudeMask) == kF32Infinity; }
// True for subnormals too: they count as zero.
constexpr bool f32_is_zero(uint32_t bits) { return (bits & kF32MagnitudeMask) < kF32MinNormal; }

// What an operand means to an operation: subnormals become zero of their sign, NaNs the canonical
// one.
constexpr uint32_t f32_canonical(uint32_t bits) {
  if (f32_is_nan(bits)) {
    return kF32CanonicalNan;
  }
  return f32_is_zero(bits) ? bits & kF32SignMask : bits;
}

namespace detail {

__extension__ using U128 = unsigned __int128;

constexpr int msb(U128 value) {  // value != 0
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? 127 - std::countl_zero(high)
                   : 63 - std::countl_zero(static_cast<uint64_t>(value));
}

// A finite non-zero number sig * 2^exp.
struct Finite {
  bool sign;
  int exp;
  U128 sig;
};

constexpr Finite unpack(uint32_t bits) {  // normal numbers only
  const int field = static_cast<int>((bits >> 23) & 0xff);
  return {(bits & kF32SignMask) != 0, field - 150, U128{(bits & 0x7fffffu) | 0x800000u}};
}

// Shifts right by n >= 0; any bit lost is kept as a one in the last place, so that rounding still
// sees it.
constexpr U128 shift_right_jam(U128 value, int n) {
  if (n == 0) {
    return value;
  }
  if (n > 127) {
    return value != 0 ? 1 : 0;
  }
  const U128 kept = value >> n;
  return kept | ((kept << n) != value ? 1 : 0);
}

// Rounds to 24 bits (nearest even) with an unbounded exponent, then decides overflow and flush.
constexpr uint32_t round_pack(const Finite& value) {
  const uint32_t sign = value.sign ? kF32SignMask : 0;
  int top = msb(value.sig);
  int exponent = value.exp + top;  // value = 1.xxx * 2^exponent
  U128 sig = top < 26 ? value.sig << (26 - top) : shift_right_jam(value.sig, top - 26);
  auto rounded = static_cast<uint32_t>(sig);  // 24 bits, then guard, round, sticky
  rounded = (rounded + 3 + ((rounded >> 3) & 1)) >> 3;
  if ((rounded >> 24) != 0) {
    rounded >>= 1;
    ++exponent;
  }
  if (exponent > 127) {
    return sign | kF32Infinity;
  }
  if (exponent < -126) {
    return sign;
  }
  return sign | (static_cast<uint32_t>(exponent + 127) << 23) | (rounded & 0x7fffffu);
}

// Exact sum of two non-zero numbers, rounded once.
constexpr uint32_t add_round(const Finite& a, const Finite& b) {
  constexpr int kTop = 110;  // leaves 17 bits for the carry above and 60 below any 48-bit product
  const int high_a = a.exp + msb(a.sig);
  const int high_b = b.exp + msb(b.sig);
  const int exp = (high_a > high_b ? high_a : high_b) - kTop;
  const auto align = [exp](const Finite& v) {
    const int n = v.exp - exp;
    return n >= 0 ? v.sig << n : shift_right_jam(v.sig, -n);
  };
  const U128 x = align(a);
  const U128 y = align(b);
  if (a.sign == b.sign) {
    return round_pack({a.sign, exp, x + y});
  }
  if (x == y) {
    return 0;
  }
  return x > y ? round_pack({a.sign, exp, x - y}) : round_pack({b.sign, exp, y - x});
}

}  // namespace detail

// a * b + c with one rounding.
constexpr uint32_t f32_fma_bits(uint32_t a, uint32_t b, uint32_t c) {
  if (f32_is_nan(a) || f32_is_nan(b) || f32_is_nan(c)) {
    return kF32CanonicalNan;
  }
  const uint32_t product_sign = (a ^ b) & kF32SignMask;
  const bool product_zero = f32_is_zero(a) || f32_is_zero(b);
  if (f32_is_inf(a) || f32_is_inf(b)) {
    const bool opposite = f32_is_inf(c) && (c & kF32SignMask) != product_sign;
    return product_zero || opposite ? kF32CanonicalNan : product_sign | kF32Infinity;
  }
  if (f32_is_inf(c)) {
    return c;
  }
  if (product_zero) {
    return f32_is_zero(c) ? product_sign & c & kF32SignMask : c;
  }
  const detail::Finite x = detail::unpack(a);
  const detail::Finite y = detail::unpack(b);
  const detail::Finite product{product_sign != 0, x.exp + y.exp, x.sig * y.sig};
  return f32_is_zero(c) ? detail::round_pack(product)
                        : detail::add_round(product, detail::unpack(c));
}

constexpr uint32_t f32_add_bits(uint32_t a, uint32_t b) {
  return f32_fma_bits(a, f32_bits(1.0f), b);
}

constexpr uint32_t f32_sub_bits(uint32_t a, uint32_t b) {
  return f32_add_bits(a, b ^ kF32SignMask);
}

constexpr uint32_t f32_mul_bits(uint32_t a, uint32_t b) {
  return f32_fma_bits(a, b, (a ^ b) & kF32SignMask);  // adding zero of the product's own sign
}

constexpr uint32_t f32_div_bits(uint32_t a, uint32_t b) {
  if (f32_is_nan(a) || f32_is_nan(b) || (f32_is_inf(a) && f32_is_inf(b)) ||
      (f32_is_zero(a) && f32_is_zero(b))) {
    return kF32CanonicalNan;
  }
  const uint32_t sign = (a ^ b) & kF32SignMask;
  if (f32_is_inf(a) || f32_is_zero(b)) {
    return sign | kF32Infinity;
  }
  if (f32_is_zero(a) || f32_is_inf(b)) {
    return sign;
  }
  const detail::Finite x = detail::unpack(a);
  const detail::Finite y = detail::unpack(b);
  const detail::U128 numerator = x.sig << 64;
  const detail::U128 quotient = numerator / y.sig;
  const detail::U128 sticky = quotient * y.sig != numerator ? 1 : 0;
  return detail::round_pack({sign != 0, x.exp - y.exp - 64, quotient | sticky});
}

constexpr uint32_t f32_sqrt_bits(uint32_t a) {
  if (f32_is_nan(a)) {
    return kF32CanonicalNan;
  }
  if (f32_is_zero(a)) {
    return a & kF32SignMask;
  }
  if ((a & kF32SignMask) != 0) {
    return kF32CanonicalNan;
  }
  if (f32_is_inf(a)) {
    return a;
  }
  const detail::Finite x = detail::unpack(a);
  const int shift = (x.exp & 1) != 0 ? 61 : 60;  // leaves an even exponent; the root has 42 bits
  const detail::U128 radicand = x.sig << shift;
  detail::U128 root = 0;
  for (int bit = 43; bit >= 0; --bit) {
    const detail::U128 trial = root | (detail::U128{1} << bit);
    if (trial * trial <= radicand) {
      root = trial;
    }
  }
  const detail::U128 sticky = root * root != radicand ? 1 : 0;
  return detail::round_pack({false, (x.exp - shift) / 2 - 1, (root << 1) | sticky});
}

constexpr float f32_fma(float a, float b, float c) {
  return f32_from_bits(f32_fma_bits(f32_bits(a), f32_bits(b), f32_bits(c)));
}
constexpr float f32_add(float a, float b) {
  return f32_from_bits(f32_add_bits(f32_bits(a), f32_bits(b)));
}
constexpr float f32_sub(float a, float b) {
  return f32_from_bits(f32_sub_bits(f32_bits(a), f32_bits(b)));
}
constexpr float f32_mul(float a, float b) {
  return f32_from_bits(f32_mul_bits(f32_bits(a), f32_bits(b)));
}
constexpr float f32_div(float a, float b) {
  return f32_from_bits(f32_div_bits(f32_bits(a), f32_bits(b)));
}
constexpr float f32_sqrt(float a) { return f32_from_bits(f32_sqrt_bits(f32_bits(a))); }

}  // namespace tpu::spec
