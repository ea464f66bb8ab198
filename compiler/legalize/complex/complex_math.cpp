// See complex_math.hpp.
#include "legalize/complex/complex_math.hpp"

namespace tpu::compiler {

Complex ComplexMath::splat(const Type& part, double re, double im) {
  return {b_.splat(part, re), b_.splat(part, im)};
}

Complex ComplexMath::add(const Complex& a, const Complex& b) {
  return {b_.add(a.re, b.re), b_.add(a.im, b.im)};
}

Complex ComplexMath::subtract(const Complex& a, const Complex& b) {
  return {b_.sub(a.re, b.re), b_.sub(a.im, b.im)};
}

Complex ComplexMath::negate(const Complex& a) { return {negate(a.re), negate(a.im)}; }

Complex ComplexMath::multiply(const Complex& a, const Complex& b) {
  return {b_.sub(b_.mul(a.re, b.re), b_.mul(a.im, b.im)),
          b_.add(b_.mul(a.re, b.im), b_.mul(a.im, b.re))};
}

Complex ComplexMath::select(Value* predicate, const Complex& a, const Complex& b) {
  return {b_.select(predicate, a.re, b.re), b_.select(predicate, a.im, b.im)};
}

Value* ComplexMath::with_sign_of(Value* magnitude, Value* sign) {
  const Type bits{Elem::kU32, sign->type.dims};
  Value* top = b_.logical_and(b_.bitcast(sign, bits), b_.splat_int(bits, 0x80000000));
  Value* rest = b_.logical_and(b_.bitcast(magnitude, bits), b_.splat_int(bits, 0x7fffffff));
  return b_.bitcast(b_.logical_or(top, rest), magnitude->type);
}

// The power of two at or below |x|, which is clamped to [low, high], powers of two. x / p is exact.
Value* ComplexMath::power_of_two_below(Value* x, double low, double high) {
  x = b_.min(b_.max(x, number(x, low)), number(x, high));
  const Type bits{Elem::kU32, x->type.dims};
  Value* exponent = b_.logical_and(b_.bitcast(x, bits), b_.splat_int(bits, 0x7f800000));
  return b_.bitcast(exponent, x->type);
}

// (a.re + i a.im) (b.re - i b.im) / |b|^2, with b scaled by a power of two so that no product and
// no square leaves the range of f32 unless the quotient does.
Complex ComplexMath::divide_finite(const Complex& a, const Complex& b) {
  constexpr double kLarge = 0x1p125;
  Value* largest = b_.max(magnitude(b.re), magnitude(b.im));
  Value* eighth = b_.select(test(kGe, largest, kLarge), number(largest, 0.125), number(largest, 1));
  const Complex dividend = scale(a, eighth);
  // p <= 2^124, so that 1 / (4 p) is a normal number; both parts of the divisor are below 1/2.
  Value* p = power_of_two_below(b_.mul(largest, eighth), 0x1p-124, 0x1p124);
  Value* factor = b_.div(number(p, 0.25), p);
  const Complex c = scale(scale(b, eighth), factor);
  Value* denominator = b_.add(b_.mul(c.re, c.re), b_.mul(c.im, c.im));
  const Complex product = multiply(dividend, conjugate(c));
  return {b_.div(b_.mul(product.re, factor), denominator),
          b_.div(b_.mul(product.im, factor), denominator)};
}

// As in Annex G of C: an infinity of the divisor's sign.
Complex ComplexMath::divided_by_zero(const Complex& a, const Complex& b) {
  return scale(a, with_sign_of(number(b.re, kInfinity), b.re));
}

Complex ComplexMath::divide(const Complex& a, const Complex& b) {
  if (is_zero(b.im)) {  // a real number
    return {b_.div(a.re, b.re), b_.div(a.im, b.re)};
  }
  const auto both = [&](Value* x, Value* y) { return b_.logical_and(x, y); };
  const auto either = [&](Value* x, Value* y) { return b_.logical_or(x, y); };
  Complex q = divide_finite(a, b);
  Value* zero = both(test(kEq, b.re, 0), test(kEq, b.im, 0));
  q = select(zero, divided_by_zero(a, b), q);
  const auto corner = [&](Value* x) {  // 1 for an infinity, else 0, with the sign of x
    return with_sign_of(b_.convert(is_infinite(x), Elem::kF32), x);
  };
  Value* a_infinite = either(is_infinite(a.re), is_infinite(a.im));
  Value* b_infinite = either(is_infinite(b.re), is_infinite(b.im));
  Value* a_finite = both(is_finite(a.re), is_finite(a.im));
  Value* b_finite = both(is_finite(b.re), is_finite(b.im));
  const Complex of_a = multiply({corner(a.re), corner(a.im)}, conjugate(b));
  const Complex grown = scale(of_a, number(of_a.re, kInfinity));
  const Complex of_b = multiply(a, conjugate({corner(b.re), corner(b.im)}));
  const Complex shrunk = scale(of_b, number(of_b.re, 0));
  q = select(both(both(a_infinite, b_finite), b_.logical_not(zero)), grown, q);
  return select(both(b_infinite, a_finite), shrunk, q);
}

Value* ComplexMath::compare(CompareDirection direction, const Complex& a, const Complex& b) {
  if (direction == kEq) {
    return b_.logical_and(b_.compare(kEq, a.re, b.re), b_.compare(kEq, a.im, b.im));
  }
  if (direction == kNe) {
    return b_.logical_or(b_.compare(kNe, a.re, b.re), b_.compare(kNe, a.im, b.im));
  }
  Value* tie = b_.logical_and(b_.compare(kEq, a.re, b.re), b_.compare(direction, a.im, b.im));
  const CompareDirection strict = direction == kGe || direction == kGt ? kGt : kLt;
  return b_.logical_or(b_.compare(strict, a.re, b.re), tie);
}

Complex ComplexMath::extreme(Kind kind, const Complex& a, const Complex& b) {
  Value* first = compare(kind == Kind::kMaximum ? kGt : kLt, a, b);
  first = b_.logical_or(first, b_.logical_or(is_nan(a.re), is_nan(a.im)));
  return select(first, a, b);
}

Value* ComplexMath::absolute(const Complex& a) {
  Value* x = magnitude(a.re);
  Value* y = magnitude(a.im);
  Value* large = b_.max(x, y);
  Value* ratio = b_.div(b_.min(x, y), large);
  Value* root = b_.unary(Kind::kSqrt, plus(b_.mul(ratio, ratio), 1));
  Value* plain = b_.logical_or(test(kEq, large, 0), test(kEq, large, kInfinity));
  return b_.select(plain, large, b_.mul(large, root));
}

Complex ComplexMath::sign(const Complex& a) {
  // Scaled, since |a| can be infinite or 0 where a is neither.
  Value* p = power_of_two_below(b_.max(magnitude(a.re), magnitude(a.im)), 0x1p-126, 0x1p126);
  const Complex scaled = {b_.div(a.re, p), b_.div(a.im, p)};
  Value* length = absolute(scaled);
  return select(test(kEq, length, 0), a, {b_.div(scaled.re, length), b_.div(scaled.im, length)});
}

}  // namespace tpu::compiler
