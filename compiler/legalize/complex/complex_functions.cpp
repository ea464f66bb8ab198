// See complex_functions.hpp.
#include "legalize/complex/complex_functions.hpp"

#include "ir/op_traits.hpp"

namespace tpu::compiler {

namespace {

constexpr bool takes_complex(Kind kind) {
  const Takes takes = traits_of(kind).takes;
  return takes == Takes::kAny || takes == Takes::kNumbers || takes == Takes::kFloatsOrComplex;
}

}  // namespace

std::optional<Complex> ComplexFunctions::unary(Kind kind, const Complex& a) {
  using Rule = Complex (*)(ComplexFunctions&, const Complex&);
  using Math = ComplexFunctions;
  static constexpr KindTable<Rule> kFunctions{
      {Kind::kNegate, [](Math& m, const Complex& x) { return m.ComplexMath::negate(x); }},
      {Kind::kSign, [](Math& m, const Complex& x) { return m.sign(x); }},
      {Kind::kExp, [](Math& m, const Complex& x) { return m.exponential(x); }},
      {Kind::kExpm1, [](Math& m, const Complex& x) { return m.exponential_minus_one(x); }},
      {Kind::kLog, [](Math& m, const Complex& x) { return m.log(x); }},
      {Kind::kLog1p, [](Math& m, const Complex& x) { return m.log_plus_one(x); }},
      {Kind::kLogistic, [](Math& m, const Complex& x) { return m.logistic(x); }},
      {Kind::kSqrt, [](Math& m, const Complex& x) { return m.sqrt(x); }},
      {Kind::kRsqrt, [](Math& m, const Complex& x) { return m.rsqrt(x); }},
      {Kind::kCbrt, [](Math& m, const Complex& x) { return m.cbrt(x); }},
      {Kind::kSine, [](Math& m, const Complex& x) { return m.sine(x); }},
      {Kind::kCosine, [](Math& m, const Complex& x) { return m.cosine(x); }},
      {Kind::kTan, [](Math& m, const Complex& x) { return m.tan(x); }},
      {Kind::kTanh, [](Math& m, const Complex& x) { return m.tanh(x); }},
  };
  static_assert(kFunctions.has_all(
      [](Kind k) { return traits_of(k).group == Group::kUnary && takes_complex(k); }));
  const Rule rule = kFunctions.find(kind);
  return rule == nullptr ? std::nullopt : std::optional(rule(*this, a));
}

std::optional<Complex> ComplexFunctions::binary(Kind kind, const Complex& a, const Complex& b) {
  using Rule = Complex (*)(ComplexFunctions&, const Complex&, const Complex&);
  using Math = ComplexFunctions;
  using Number = const Complex&;
  static constexpr KindTable<Rule> kFunctions{
      {Kind::kAdd, [](Math& m, Number x, Number y) { return m.add(x, y); }},
      {Kind::kSubtract, [](Math& m, Number x, Number y) { return m.subtract(x, y); }},
      {Kind::kMultiply, [](Math& m, Number x, Number y) { return m.multiply(x, y); }},
      {Kind::kDivide, [](Math& m, Number x, Number y) { return m.divide(x, y); }},
      {Kind::kPower, [](Math& m, Number x, Number y) { return m.power(x, y); }},
      {Kind::kAtan2, [](Math& m, Number x, Number y) { return m.atan2(x, y); }},
      {Kind::kMaximum, [](Math& m, Number x, Number y) { return m.extreme(Kind::kMaximum, x, y); }},
      {Kind::kMinimum, [](Math& m, Number x, Number y) { return m.extreme(Kind::kMinimum, x, y); }},
  };
  static_assert(kFunctions.has_all([](Kind k) {
    return traits_of(k).group == Group::kBinary && takes_complex(k) &&
           k != Kind::kRemainder;  // has no meaning on complex numbers: rejected by the caller
  }));
  const Rule rule = kFunctions.find(kind);
  return rule == nullptr ? std::nullopt : std::optional(rule(*this, a, b));
}

// Knuth: a + b = hi + lo, exactly.
ComplexFunctions::Double ComplexFunctions::two_sum(Value* a, Value* b) {
  Value* sum = b_.add(a, b);
  Value* part = b_.sub(sum, a);
  Value *of_b = b_.sub(b, part), *of_a = b_.sub(a, b_.sub(sum, part));
  return {sum, b_.add(of_a, of_b)};
}

ComplexFunctions::Double ComplexFunctions::square(Value* x) {
  Value* product = b_.mul(x, x);
  return {product, fma(x, x, negate(product))};
}

Value* ComplexFunctions::squares_plus(Value* first, Value* x, Value* y) {
  const Double xx = square(x), yy = square(y);
  const Double some = two_sum(first, xx.hi);
  const Double all = two_sum(some.hi, yy.hi);
  Value *of_squares = b_.add(xx.lo, yy.lo), *of_sums = b_.add(all.lo, some.lo);
  return b_.add(all.hi, b_.add(of_sums, of_squares));
}

// Near the unit circle from |a|^2 - 1, without its cancellation; elsewhere log(large * root).
Value* ComplexFunctions::log_of_absolute(const Complex& a) {
  Value* x = magnitude(a.re);
  Value* y = magnitude(a.im);
  Value* large = b_.max(x, y);
  Value* ratio = b_.div(b_.min(x, y), large);
  Value* root = b_.unary(Kind::kLog1p, b_.mul(ratio, ratio));
  Value *half_root = times(root, 0.5), *log_of_large = b_.unary(Kind::kLog, large);
  Value* far = b_.add(log_of_large, half_root);
  Value* near = times(b_.unary(Kind::kLog1p, squares_plus(number(x, -1), x, y)), 0.5);
  Value *below_two = test(kLt, large, 2), *above_half = test(kGt, large, 0.5);
  Value* is_near = b_.logical_and(above_half, below_two);
  Value* out = b_.select(is_near, near, far);
  Value* plain = is_zero_or_infinite(large);
  return b_.select(plain, b_.unary(Kind::kLog, large), out);
}

// In two factors: e^re may be out of range where its product with a sine is not.
Complex ComplexFunctions::exponential(const Complex& a) {
  Value* half = b_.unary(Kind::kExp, times(a.re, 0.5));
  const auto part = [&](Kind kind) { return b_.mul(b_.mul(half, b_.unary(kind, a.im)), half); };
  Value* is_real = test(kEq, a.im, 0);
  Value *turned = part(Kind::kCosine), *real = b_.unary(Kind::kExp, a.re);
  return {b_.select(is_real, real, turned), b_.select(is_real, a.im, part(Kind::kSine))};
}

// Re: (e^re - 1) cos im - 2 sin^2(im / 2).
Complex ComplexFunctions::exponential_minus_one(const Complex& a) {
  const Complex e = exponential(a);
  Value* sine = b_.unary(Kind::kSine, times(a.im, 0.5));
  Value *cosine = b_.unary(Kind::kCosine, a.im), *grown = b_.unary(Kind::kExpm1, a.re);
  Value* less = b_.mul(grown, cosine);
  Value* small = b_.sub(less, times(b_.mul(sine, sine), 2));
  constexpr double kLarge = 20;  // from here on the 1 does not count
  Value* re = b_.select(test(kGt, a.re, kLarge), e.re, small);
  Value* is_real = test(kEq, a.im, 0);
  return {b_.select(is_real, b_.unary(Kind::kExpm1, a.re), re), e.im};
}

Complex ComplexFunctions::log(const Complex& a) { return {log_of_absolute(a), phase(a)}; }

// |1 + a|^2 - 1 = 2 re + re^2 + im^2 where a is not large.
Complex ComplexFunctions::log_plus_one(const Complex& a) {
  const Complex sum = {plus(a.re, 1), a.im};
  Value* large = larger_part(a);
  Value* inner = squares_plus(times(a.re, 2), a.re, a.im);
  Value* near = times(b_.unary(Kind::kLog1p, inner), 0.5);
  return {where(kLt, large, 1, near, log_of_absolute(sum)), phase(sum)};
}

Complex ComplexFunctions::logistic(const Complex& a) {
  const Complex e = exponential(negate(a));
  const Complex below = {plus(e.re, 1), e.im}, one = splat(a.re->type, 1, 0);
  return divide(one, below);
}

// t = sqrt((|re| + |a|) / 2) is the larger part, im / (2 t) the other; a is scaled by a power of
// four so that sums stay in range and small numbers keep their bits.
Complex ComplexFunctions::sqrt(const Complex& a) {
  Value* large = larger_part(a);
  const auto choose = [&](double big, double small, double other) {
    Value *of_others = number(large, other), *of_small = number(large, small);
    Value* of_rest = where(kLt, large, 0x1p-80, of_small, of_others);
    return where(kGe, large, 0x1p120, number(large, big), of_rest);
  };
  Value* factor = choose(0x1p-8, 0x1p48, 1);
  Value* root_of_factor = choose(0x1p4, 0x1p-24, 1);
  const Complex c = scale(a, factor);
  Value *half_length = times(absolute(c), 0.5), *half_part = times(magnitude(c.re), 0.5);
  Value* mean = b_.add(half_part, half_length);
  Value* t = b_.unary(Kind::kSqrt, mean);
  Value* other = b_.div(times(magnitude(c.im), 0.5), t);
  t = b_.mul(t, root_of_factor);
  other = b_.mul(other, root_of_factor);
  Value* positive = test(kGe, a.re, 0);
  Value* not_a_number = either_part(a, &ComplexFunctions::is_nan);
  Complex out = {b_.select(positive, t, other), with_sign_of(b_.select(positive, other, t), a.im)};
  Value* zero = b_.zeros_like(a.re);
  Value* infinite = number(a.re, kInfinity);
  out = select(test(kEq, large, 0), {zero, a.im}, out);
  // Of an infinite real part the other part is 0 unless it is infinite, too.
  Value *im_finite = is_finite(a.im), *re_infinite = is_infinite(a.re);
  Value* on_axis = b_.logical_and(re_infinite, im_finite);
  Value* none = with_sign_of(zero, a.im);
  out = select(on_axis, select(positive, {infinite, none}, {zero, with_sign_of(infinite, a.im)}),
               out);
  out = select(is_infinite(a.im), {infinite, a.im}, out);
  return select(not_a_number, {b_.add(a.re, a.im), b_.add(a.re, a.im)}, out);
}

// conj(r) / |a| with r = sqrt(a).
Complex ComplexFunctions::rsqrt(const Complex& a) {
  const Complex r = sqrt(a);
  Value* length = absolute(r);
  const Complex unit = {b_.div(r.re, length), b_.div(negate(r.im), length)};
  const Complex out = {b_.div(unit.re, length), b_.div(unit.im, length)};
  Value* infinite = either_part(a, &ComplexFunctions::is_infinite);
  Value* zero = b_.zeros_like(a.re);
  return select(infinite, {zero, negate(with_sign_of(zero, a.im))}, out);
}

Complex ComplexFunctions::cbrt(const Complex& a) {
  Value* length = b_.unary(Kind::kCbrt, absolute(a));
  Value *three = number(a.re, 3), *whole_angle = phase(a);
  Value* angle = b_.div(whole_angle, three);
  return {b_.mul(length, b_.unary(Kind::kCosine, angle)),
          b_.mul(length, b_.unary(Kind::kSine, angle))};
}

// From e^|x| - 1, which is exact for small x; in two factors for large x.
ComplexFunctions::Hyperbolic ComplexFunctions::hyperbolic(Value* x) {
  Value* length = magnitude(x);
  Value* less = b_.unary(Kind::kExpm1, length);
  Value* more = plus(less, 1);
  Value* small_sinh = times(b_.add(less, b_.div(less, more)), 0.5);
  Value* small_cosh = times(b_.add(more, b_.div(number(x, 1), more)), 0.5);
  constexpr double kLarge = 20;  // from here on e^-|x| does not count
  Value* half = b_.unary(Kind::kExp, times(length, 0.5));
  Value* large = b_.mul(times(half, 0.5), half);
  Value* is_large = test(kGt, length, kLarge);
  return {with_sign_of(b_.select(is_large, large, small_sinh), x),
          b_.select(is_large, large, small_cosh)};
}

// The imaginary part of a real number is a zero, also where the other factor is infinite.
Complex ComplexFunctions::sine(const Complex& a) {
  const Hyperbolic h = hyperbolic(a.im);
  Value* im = b_.mul(b_.unary(Kind::kCosine, a.re), h.sinh);
  Value* sine = b_.unary(Kind::kSine, a.re);
  return {where(kEq, a.re, 0, a.re, b_.mul(sine, h.cosh)), where(kEq, a.im, 0, a.im, im)};
}

Complex ComplexFunctions::cosine(const Complex& a) {
  const Hyperbolic h = hyperbolic(a.im);
  Value* sine = b_.unary(Kind::kSine, a.re);
  Value* im = negate(b_.mul(sine, h.sinh));
  Value* zero = either_part(a, &ComplexFunctions::is_nothing);
  return {b_.mul(b_.unary(Kind::kCosine, a.re), h.cosh),
          b_.select(zero, negate(b_.mul(a.re, a.im)), im)};
}

Complex ComplexFunctions::tan(const Complex& a) {
  const Complex t = tanh({negate(a.im), a.re});  // tan a = -i tanh(i a)
  return {t.im, negate(t.re)};
}

// With s = sinh re, c = cosh re: (s c + i sin im cos im) / (s^2 + cos^2 im). Beyond 20 the real
// part is 1 and the other 2 sin(2 im) e^(-2 re).
Complex ComplexFunctions::tanh(const Complex& a) {
  constexpr double kLarge = 20;
  Value* least = number(a.re, -kLarge);
  const Hyperbolic h = hyperbolic(b_.max(b_.min(a.re, number(a.re, kLarge)), least));
  Value* sine = b_.unary(Kind::kSine, a.im);
  Value* cosine = b_.unary(Kind::kCosine, a.im);
  Value* below = sum_of_squares(h.sinh, cosine);
  Value* product = b_.mul(sine, cosine);
  Complex out = {b_.div(b_.mul(h.sinh, h.cosh), below), b_.div(product, below)};
  Value* length = magnitude(a.re);
  Value* fade = b_.unary(Kind::kExp, times(length, -2));
  Value* far = b_.mul(times(product, 4), fade);
  Value *none = with_sign_of(b_.zeros_like(far), a.im), *bounded = is_finite(a.im);
  far = b_.select(bounded, far, none);
  out = where(kGt, length, kLarge, {with_sign_of(number(length, 1), a.re), far}, out);
  return {out.re, b_.select(test(kEq, a.im, 0), a.im, out.im)};
}

// e^(b log a), the magnitude by f32's own power. A base of 0 gives 0 for exponents with a positive
// real part and no imaginary one, an exponent of 0 gives 1.
Complex ComplexFunctions::power(const Complex& a, const Complex& b) {
  Value* length = absolute(a);
  Value* angle = phase(a);
  Value* turned = b_.unary(Kind::kExp, negate(b_.mul(b.im, angle)));
  turned = where(kEq, b.im, 0, number(turned, 1), turned);
  Value* size = b_.mul(b_.binary(Kind::kPower, length, b.re), turned);
  Value* logs = b_.mul(b.im, log_of_absolute(a));
  logs = where(kEq, b.im, 0, b_.zeros_like(logs), logs);
  Value* theta = b_.add(b_.mul(b.re, angle), logs);
  Value* is_flat = test(kEq, theta, 0);
  Value* none = b_.zeros_like(theta);
  Complex out = {b_.mul(size, b_.unary(Kind::kCosine, theta)),
                 b_.select(is_flat, none, b_.mul(size, b_.unary(Kind::kSine, theta)))};
  Value* real_exponent = test(kEq, b.im, 0);
  Value *above_zero = test(kGt, b.re, 0), *of_zero = test(kEq, length, 0);
  Value* vanishes = b_.logical_and(b_.logical_and(of_zero, above_zero), real_exponent);
  out = select(vanishes, splat(none->type, 0, 0), out);
  Value* is_one = b_.logical_and(test(kEq, b.re, 0), real_exponent);
  return select(is_one, splat(none->type, 1, 0), out);
}

// -i log((x + i y) / sqrt(x^2 + y^2)).
Complex ComplexFunctions::atan2(const Complex& y, const Complex& x) {
  const Complex sum = add(x, {negate(y.im), y.re});
  const Complex yy = multiply(y, y), xx = multiply(x, x);
  const Complex root = sqrt(add(xx, yy));
  const Complex l = log(divide(sum, root));
  return {l.im, negate(l.re)};
}

}  // namespace tpu::compiler
