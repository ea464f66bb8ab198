// See double_functions.hpp.
#include "legalize/double/double_functions.hpp"

#include <cmath>
#include <iterator>
#include <numbers>

namespace tpu::compiler {

namespace {

using Direction = CompareDirection;

// erf(k / 4) for k = 1 ..
constexpr double kErfOfQuarters[] = {
    0.2763263901682369, 0.5204998778130465, 0.7111556336535151, 0.8427007929497149,
    0.9229001282564582, 0.9661051464753108, 0.9866716712191824, 0.9953222650189527,
    0.9985372834133188, 0.999593047982555,  0.9998993780778803, 0.9999779095030014,
    0.9999956972205363, 0.9999992569016276, 0.9999998862727434, 0.9999999845827421,
    0.9999999981494259, 0.9999999998033839, 0.9999999999815149, 0.9999999999984626,
    0.9999999999998869, 0.9999999999999927, 0.9999999999999996, 1.0,
};

double factorial(int n) { return n <= 1 ? 1 : n * factorial(n - 1); }

}  // namespace

Value* DoubleFunctions::polynomial(Value* x, const std::vector<double>& c) {
  Value* sum = m_.number(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) {
    sum = m_.fma(sum, x, m_.number(x, c[i]));
  }
  return sum;
}

Pair DoubleFunctions::or_plain(const Pair& x, Value* plain, Value* takes_plain) {
  return m_.select(takes_plain, m_.from_f32(plain), x);
}

// k = x / step, rounded; x clamped to what k can hold, NaN kept. The step is three f32 numbers, the
// products with k are exact.
DoubleFunctions::Reduced DoubleFunctions::reduced(const Pair& x, double step, double most) {
  Value* upper = m_.number(x.hi, most);
  Value* hi = b_.min(b_.max(x.hi, m_.number(x.hi, -most)), upper);
  Value* same = b_.compare(Direction::kEq, hi, x.hi);
  const Pair inside{hi, b_.select(same, x.lo, b_.zeros_like(x.lo))};
  Value* k = b_.unary(Kind::kRoundEven, b_.mul(hi, m_.number(hi, 1 / step)));
  Value* minus_k = m_.negate(k);
  const auto first = static_cast<float>(step);
  const auto second = static_cast<float>(step - first);
  const auto third = static_cast<float>(
      (step == std::numbers::ln2 ? 0x1.abc9e3b39803fp-56L : 0x1.1a62633145c07p-54L) +
      (static_cast<long double>(step) - first - second));
  Pair rest = m_.add(inside, m_.exact_product(minus_k, m_.number(k, first)));
  rest = m_.add(rest, m_.exact_product(minus_k, m_.number(k, second)));
  return {m_.add(rest, m_.exact_product(minus_k, m_.number(k, third))), k};
}

// Of r / 8, then three times e^2r - 1 = (e^r - 1) (2 + (e^r - 1)).
Pair DoubleFunctions::expm1_near_zero(const Pair& r) {
  constexpr int kExact = 4, kTerms = 9, kDoublings = 3;
  const Pair x = m_.scale(r, 0.125);
  std::vector<double> tail;
  for (int n = kExact + 1; n <= kTerms; ++n) {
    tail.push_back(1 / factorial(n));
  }
  Pair sum = m_.from_f32(polynomial(x.hi, tail));
  for (int n = kExact; n >= 1; --n) {
    sum = plus(m_.multiply(sum, x), 1 / factorial(n));
  }
  sum = m_.multiply(sum, x);
  for (int i = 0; i < kDoublings; ++i) {
    sum = m_.multiply(sum, plus(sum, 2));
  }
  // A zero keeps its sign.
  return or_plain(sum, r.hi, m_.test(Direction::kEq, r.hi, 0));
}

Pair DoubleFunctions::exp(const Pair& x) {
  const Reduced by_ln2 = reduced(x, std::numbers::ln2, 170);
  const Pair y = m_.times_power_of_two(plus(expm1_near_zero(by_ln2.rest), 1), by_ln2.k);
  Value* plain = b_.unary(Kind::kExp, x.hi);
  return or_plain(y, plain, b_.logical_not(b_.unary(Kind::kIsFinite, x.hi)));
}

Pair DoubleFunctions::expm1(const Pair& x) {
  const Reduced by_ln2 = reduced(x, std::numbers::ln2, 170);
  const Pair near = expm1_near_zero(by_ln2.rest);
  // 2^k (near + 1) - 1 = 2^k near + (2^k - 1)
  Value* k = b_.min(by_ln2.k, m_.number(by_ln2.k, 100));
  const Pair one = num(x, 1);
  const Pair grown = plus(m_.times_power_of_two(one, k), -1);
  const Pair far = m_.add(m_.times_power_of_two(near, k), grown);
  Pair y = m_.select(m_.test(Direction::kEq, k, 0), near, far);
  y = m_.where(Direction::kGt, by_ln2.k, 100, m_.times_power_of_two(plus(near, 1), by_ln2.k), y);
  Value* plain = b_.unary(Kind::kExpm1, x.hi);
  return or_plain(y, plain, b_.logical_not(b_.unary(Kind::kIsFinite, x.hi)));
}

// y0 + log1p(d), y0 the f32 result and d = (x - (e^y0 - 1)) e^-y0, for |x| < 0.5.
Pair DoubleFunctions::log1p_near_zero(const Pair& x) {
  Value* y0 = b_.unary(Kind::kLog1p, x.hi);
  const Pair gap = m_.subtract(x, expm1_near_zero(m_.from_f32(y0)));
  Value* d = b_.mul(gap.hi, b_.unary(Kind::kExp, m_.negate(y0)));
  Value* minus_half = m_.number(d, -0.5);
  Value* square = b_.mul(b_.mul(d, d), minus_half);
  return m_.normal(y0, b_.add(d, square));
}

// x = 2^k m with m in [0.75, 1.5): k ln 2 + log1p(m - 1).
Pair DoubleFunctions::log(const Pair& x) {
  const Type integers{Elem::kI32, x.hi->type.dims};
  Value* bits = b_.bitcast(x.hi, integers);
  Value* biased = b_.sub(bits, b_.splat_int(integers, 0x3f400000));  // of 0.75
  Value* k =
      b_.convert(b_.binary(Kind::kShiftRightArith, biased, b_.splat_int(integers, 23)), Elem::kF32);
  // Finite and positive numbers only, so that the power exists.
  Value* most = m_.number(k, 128);
  k = b_.min(b_.max(k, m_.number(k, -127)), most);
  const Pair mantissa = m_.times_power_of_two(x, m_.negate(k));
  const Pair near = log1p_near_zero(plus(mantissa, -1));
  const Pair ln2{m_.number(k, std::numbers::ln2),
                 m_.number(k, std::numbers::ln2 - static_cast<float>(std::numbers::ln2))};
  const Pair y = m_.add(m_.multiply(m_.from_f32(k), ln2), near);
  Value* plain = b_.unary(Kind::kLog, x.hi);
  return or_plain(y, plain, b_.logical_not(b_.unary(Kind::kIsFinite, plain)));
}

Pair DoubleFunctions::log1p(const Pair& x) {
  Value* size = b_.unary(Kind::kAbs, x.hi);
  Value* near = m_.test(Direction::kLt, size, 0.4);
  const Pair inside = m_.select(near, x, num(x, 0));
  const Pair far = log(plus(x, 1)), close = log1p_near_zero(inside);
  const Pair y = m_.select(near, close, far);
  // Where x rounds to -1, only the pair tells -1, less and more apart.
  Value* plain = b_.unary(Kind::kLog1p, x.hi);
  return or_plain(y, plain, b_.logical_not(b_.unary(Kind::kIsFinite, x.hi)));
}

// t / (t + 2) with t = e^2|x| - 1.
Pair DoubleFunctions::tanh(const Pair& x) {
  const Pair size = m_.absolute(x);
  const Pair t = expm1(m_.scale(size, 2));
  Pair y = m_.divide(t, plus(t, 2));
  y = m_.where(Direction::kGt, size.hi, 20, num(x, 1), y);
  y = m_.where(Direction::kLt, x.hi, 0, m_.negate(y), y);
  Value* is_nan = b_.compare(Direction::kNe, x.hi, x.hi);
  return or_plain(y, x.hi, b_.logical_or(is_nan, m_.test(Direction::kEq, x.hi, 0)));
}

Pair DoubleFunctions::logistic(const Pair& x) {
  const Pair z = exp(m_.negate(m_.absolute(x)));
  const Pair one = num(x, 1);
  const Pair numerator = m_.select(m_.test(Direction::kLt, x.hi, 0), z, one);
  return m_.divide(numerator, m_.add(z, one));
}

// Sum of z^k / (first + 2 k)! up to `last`; terms beyond `exact` in f32.
Pair DoubleFunctions::every_other_term(const Pair& z, int first, int exact, int last) {
  std::vector<double> tail;
  for (int n = exact + 2; n <= last; n += 2) {
    tail.push_back(1 / factorial(n));
  }
  Pair sum = m_.from_f32(polynomial(z.hi, tail));
  for (int n = exact; n >= first; n -= 2) {
    sum = plus(m_.multiply(sum, z), 1 / factorial(n));
  }
  return sum;
}

Pair DoubleFunctions::sine_near_zero(const Pair& r) {
  const Pair z = m_.negate(m_.multiply(r, r));
  const Pair sum = every_other_term(z, 3, 9, 17);
  return m_.add(r, m_.multiply(m_.multiply(sum, z), r));
}

Pair DoubleFunctions::cosine_near_zero(const Pair& r) {
  return every_other_term(m_.negate(m_.multiply(r, r)), 0, 8, 16);
}

// Up to 2^22 the rest of x by pi / 2 is that of pairs; beyond, the exact reduction of the f32
// instructions serves, with the accuracy of f32.
Pair DoubleFunctions::sine(const Pair& x, bool cosine) {
  constexpr double kMost = 0x1p22;
  const Reduced by_half_pi = reduced(x, std::numbers::pi / 2, kMost);
  const Type integers{Elem::kI32, x.hi->type.dims};
  Value* n = b_.convert(by_half_pi.k, Elem::kI32);
  n = cosine ? b_.add(n, b_.splat_int(integers, 1)) : n;
  const auto bit = [&](int64_t which) {
    Value* none = b_.splat_int(integers, 0);
    return b_.compare(Direction::kNe, b_.logical_and(n, b_.splat_int(integers, which)), none);
  };
  const Pair s = sine_near_zero(by_half_pi.rest), c = cosine_near_zero(by_half_pi.rest);
  Pair y = m_.select(bit(1), c, s);
  const Pair minus_y = m_.negate(y);
  y = m_.select(bit(2), minus_y, y);
  // sin(hi + lo) = sin hi cos lo + cos hi sin lo
  const auto f = [&](Kind kind, Value* v) { return b_.unary(kind, v); };
  const Kind same = cosine ? Kind::kCosine : Kind::kSine;
  const Kind other = cosine ? Kind::kSine : Kind::kCosine;
  Value *sine_of_lo = f(Kind::kSine, x.lo), *other_of_hi = f(other, x.hi);
  Value* turned = b_.mul(other_of_hi, sine_of_lo);
  Value *cosine_of_lo = f(Kind::kCosine, x.lo), *same_of_hi = f(same, x.hi);
  Value* straight = b_.mul(same_of_hi, cosine_of_lo);
  Value* plain = cosine ? b_.sub(straight, turned) : b_.add(straight, turned);
  Value* inside = m_.test(Direction::kLe, b_.unary(Kind::kAbs, x.hi), kMost);
  y = or_plain(y, plain, b_.logical_not(inside));
  return cosine ? y : or_plain(y, x.hi, m_.test(Direction::kEq, x.hi, 0));
}

Pair DoubleFunctions::tangent(const Pair& x) {
  const Pair c = sine(x, true), s = sine(x, false);
  return m_.divide(s, c);
}

// e^(y log |x|), with the sign of x for odd y. The f32 instruction has the cases of IEEE 754
// without a logarithm; a base next to 1 is not 1 there.
Pair DoubleFunctions::power(const Pair& x, const Pair& y) {
  const Pair size = m_.absolute(x);
  Value* lower = m_.where(Direction::kLt, size.lo, 0, m_.number(size.hi, 0.5), size.hi);
  Value* base = m_.where(Direction::kGt, size.lo, 0, m_.number(size.hi, 2), lower);
  base = b_.select(m_.test(Direction::kEq, size.hi, 1), base, size.hi);
  Value* plain = b_.binary(Kind::kPower, base, y.hi);
  const Pair z = exp(m_.multiply(y, log(size)));
  const auto special = [&](Value* v) {
    Value* of_zero = m_.test(Direction::kEq, v, 0);
    return b_.logical_or(b_.logical_not(b_.unary(Kind::kIsFinite, v)), of_zero);
  };
  Value *of_y = special(y.hi), *of_x = special(x.hi);
  Value* is_special = b_.logical_or(of_x, of_y);
  Value* one = m_.compare(Direction::kEq, size, num(x, 1), false);
  Pair out = or_plain(z, plain, b_.logical_or(one, is_special));
  Value* whole = m_.compare(Direction::kEq, m_.floor(y), y, false);
  const Pair half = m_.scale(y, 0.5);
  Value* odd = b_.logical_and(whole, m_.compare(Direction::kNe, m_.floor(half), half, false));
  const Pair minus_out = m_.negate(out);
  out = m_.select(b_.logical_and(m_.has_sign(x.hi), odd), minus_out, out);
  Value* broken = b_.logical_not(b_.logical_or(whole, is_special));
  Value* undefined = b_.logical_and(m_.test(Direction::kLt, x.hi, 0), broken);
  return or_plain(out, m_.number(x.hi, __builtin_nan("")), undefined);
}

// One step of Newton from the f32 result a: y cos a - x sin a over x cos a + y sin a. Both numbers
// scaled by the larger one, so that nothing overflows.
Pair DoubleFunctions::atan2(const Pair& y, const Pair& x) {
  Value* plain = b_.binary(Kind::kAtan2, y.hi, x.hi);
  Value *x_size = b_.unary(Kind::kAbs, x.hi), *y_size = b_.unary(Kind::kAbs, y.hi);
  Value* largest = b_.max(y_size, x_size);
  const Type bits{Elem::kI32, largest->type.dims};
  Value *fraction = b_.splat_int(bits, 23), *word = b_.bitcast(largest, bits);
  Value* field = b_.binary(Kind::kShiftRightLogical, word, fraction);
  Value* k = b_.convert(b_.sub(b_.splat_int(bits, 127), field), Elem::kF32);
  const Pair v = m_.times_power_of_two(y, k), u = m_.times_power_of_two(x, k);
  const Pair a = m_.from_f32(plain);
  const Pair s = sine(a, false), c = sine(a, true);
  const Pair us = m_.multiply(u, s), vc = m_.multiply(v, c);
  const Pair across = m_.subtract(vc, us);
  Value *of_v = b_.mul(v.hi, s.hi), *of_u = b_.mul(u.hi, c.hi);
  Value* along = b_.add(of_u, of_v);
  Value* rest = b_.div(across.hi, along);
  const Pair quarter = num(x, std::numbers::pi / 4);
  Value* eighths =
      b_.unary(Kind::kRoundEven, b_.mul(plain, m_.number(plain, 4 / std::numbers::pi)));
  Value* of_zero = m_.test(Direction::kEq, plain, 0);
  const Pair y0 = or_plain(m_.multiply(m_.from_f32(eighths), quarter), plain, of_zero);
  // Of zeros and infinities: a multiple of pi / 4.
  Value* regular = b_.unary(Kind::kIsFinite, rest);
  const Pair out = m_.select(regular, m_.normal(plain, rest), y0);
  return or_plain(out, plain, b_.logical_not(b_.unary(Kind::kIsFinite, plain)));
}

// erf(c) and the integral from there, with c the next multiple of 1/4 and d = |x| - c:
//   2 / sqrt(pi) e^-c^2 (integral of e^(-2 c t - t^2) for t from 0 to d)
// The integrand's series has the terms u_k+1 = (-2 c d u_k - 2 d^2 u_k-1) / (k + 1).
Pair DoubleFunctions::erf(const Pair& x) {
  constexpr int kTerms = 17;
  constexpr double kMost = std::size(kErfOfQuarters) / 4.0;
  const Pair size = m_.absolute(x);
  Value* c = b_.unary(Kind::kRoundEven, b_.mul(size.hi, m_.number(size.hi, 4)));
  Value* most = m_.number(c, kMost);
  c = b_.min(b_.mul(c, m_.number(c, 0.25)), most);
  const Pair d = m_.add(size, m_.from_f32(m_.negate(c)));
  const Pair by_last = m_.multiply(m_.from_f32(b_.mul(c, m_.number(c, -2))), d);
  const Pair by_one_before = m_.scale(m_.multiply(d, d), -2);
  Pair before = num(x, 0), term = num(x, 1), sum = term;
  for (int k = 0; k < kTerms; ++k) {
    const Pair older = m_.multiply(by_one_before, before);
    const Pair next = m_.add(m_.multiply(by_last, term), older);
    before = term;
    term = times(next, 1.0 / (k + 1));
    sum = m_.add(sum, times(term, 1.0 / (k + 2)));
  }
  Pair known = num(x, 0);
  for (size_t k = 0; k < std::size(kErfOfQuarters); ++k) {
    Value* here = m_.test(Direction::kEq, c, 0.25 * static_cast<double>(k + 1));
    known = m_.select(here, num(x, kErfOfQuarters[k]), known);
  }
  const Pair slope = times(exp(m_.from_f32(m_.negate(b_.mul(c, c)))), 2 * std::numbers::inv_sqrtpi);
  Pair y = m_.add(known, m_.multiply(slope, m_.multiply(d, sum)));
  y = m_.where(Direction::kGt, size.hi, kMost, num(x, 1), y);
  const Pair minus_y = m_.negate(y);
  y = m_.select(m_.has_sign(x.hi), minus_y, y);
  Value* is_nan = b_.compare(Direction::kNe, x.hi, x.hi);
  return or_plain(y, x.hi, b_.logical_or(is_nan, m_.test(Direction::kEq, x.hi, 0)));
}

std::optional<Pair> DoubleFunctions::unary(Kind kind, const Pair& x) {
  switch (kind) {
    case Kind::kAbs:
      return m_.absolute(x);
    case Kind::kNegate:
      return m_.negate(x);
    case Kind::kSign:
      return m_.sign(x);
    case Kind::kFloor:
      return m_.floor(x);
    case Kind::kCeil:
      return m_.negate(m_.floor(m_.negate(x)));
    case Kind::kRoundEven:
    case Kind::kRoundAfz:
      return m_.round(x, kind == Kind::kRoundEven);
    case Kind::kSqrt:
      return m_.square_root(x);
    case Kind::kRsqrt: {
      const Pair root = m_.square_root(x);
      return m_.divide(num(x, 1), root);
    }
    case Kind::kCbrt:
      return m_.cube_root(x);
    case Kind::kExp:
      return exp(x);
    case Kind::kExpm1:
      return expm1(x);
    case Kind::kLog:
      return log(x);
    case Kind::kLog1p:
      return log1p(x);
    case Kind::kTanh:
      return tanh(x);
    case Kind::kLogistic:
      return logistic(x);
    case Kind::kSine:
      return sine(x, false);
    case Kind::kCosine:
      return sine(x, true);
    case Kind::kTan:
      return tangent(x);
    case Kind::kErf:
      return erf(x);
    default:  // the caller rejects it
      return std::nullopt;
  }
}

std::optional<Pair> DoubleFunctions::binary(Kind kind, const Pair& x, const Pair& y) {
  switch (kind) {
    case Kind::kAdd:
      return m_.add(x, y);
    case Kind::kSubtract:
      return m_.subtract(x, y);
    case Kind::kMultiply:
      return m_.multiply(x, y);
    case Kind::kDivide:
      return m_.divide(x, y);
    case Kind::kRemainder:
      return m_.remainder(x, y);
    case Kind::kMaximum:
    case Kind::kMinimum:
      return m_.extreme(kind, x, y);
    case Kind::kPower:
      return power(x, y);
    case Kind::kAtan2:
      return atan2(x, y);
    default:  // the caller rejects it
      return std::nullopt;
  }
}

}  // namespace tpu::compiler
