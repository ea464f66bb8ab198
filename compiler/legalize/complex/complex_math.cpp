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
  Value *im_im = b_.mul(a.im, b.im), *re_re = b_.mul(a.re, b.re);
  Value* re = b_.sub(re_re, im_im);
  Value *im_re = b_.mul(a.im, b.re), *re_im = b_.mul(a.re, b.im);
  return {re, b_.add(re_im, im_re)};
}

Complex ComplexMath::select(Value* predicate, const Complex& a, const Complex& b) {
  return {b_.select(predicate, a.re, b.re), b_.select(predicate, a.im, b.im)};
}

Value* ComplexMath::both_parts(const Complex& a, PartTest is) {
  Value *im = (this->*is)(a.im), *re = (this->*is)(a.re);
  return b_.logical_and(re, im);
}

Value* ComplexMath::either_part(const Complex& a, PartTest is) {
  Value *im = (this->*is)(a.im), *re = (this->*is)(a.re);
  return b_.logical_or(re, im);
}

Value* ComplexMath::larger_part(const Complex& a) {
  Value *im = magnitude(a.im), *re = magnitude(a.re);
  return b_.max(re, im);
}

Value* ComplexMath::sum_of_squares(Value* x, Value* y) {
  Value *yy = b_.mul(y, y), *xx = b_.mul(x, x);
  return b_.add(xx, yy);
}

Value* ComplexMath::is_zero_or_infinite(Value* x) {
  Value *infinite = test(kEq, x, kInfinity), *zero = test(kEq, x, 0);
  return b_.logical_or(zero, infinite);
}

Value* ComplexMath::masked(Value* x, int64_t mask) {
  const Type bits{Elem::kU32, x->type.dims};
  Value *pattern = b_.splat_int(bits, mask), *word = b_.bitcast(x, bits);
  return b_.logical_and(word, pattern);
}

Value* ComplexMath::with_sign_of(Value* magnitude, Value* sign) {
  Value* top = masked(sign, 0x80000000);
  Value* rest = masked(magnitude, 0x7fffffff);
  return b_.bitcast(b_.logical_or(top, rest), magnitude->type);
}

// The power of two at or below |x|, which is clamped to [low, high], powers of two. x / p is exact.
Value* ComplexMath::power_of_two_below(Value* x, double low, double high) {
  Value* most = number(x, high);
  x = b_.min(b_.max(x, number(x, low)), most);
  return b_.bitcast(masked(x, 0x7f800000), x->type);
}

// (a.re + i a.im) (b.re - i b.im) / |b|^2, with b scaled by a power of two so that no product and
// no square leaves the range of f32 unless the quotient does.
Complex ComplexMath::divide_finite(const Complex& a, const Complex& b) {
  constexpr double kLarge = 0x1p125;
  Value* largest = larger_part(b);
  Value *one = number(largest, 1), *small = number(largest, 0.125);
  Value* eighth = where(kGe, largest, kLarge, small, one);
  const Complex dividend = scale(a, eighth);
  // p <= 2^124, so that 1 / (4 p) is a normal number; both parts of the divisor are below 1/2.
  Value* p = power_of_two_below(b_.mul(largest, eighth), 0x1p-124, 0x1p124);
  Value* factor = b_.div(number(p, 0.25), p);
  const Complex c = scale(scale(b, eighth), factor);
  Value* denominator = sum_of_squares(c.re, c.im);
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
  Complex q = divide_finite(a, b);
  Value* zero = both_parts(b, &ComplexMath::is_nothing);
  q = select(zero, divided_by_zero(a, b), q);
  const auto corner = [&](Value* x) {  // 1 for an infinity, else 0, with the sign of x
    return with_sign_of(b_.convert(is_infinite(x), Elem::kF32), x);
  };
  Value* a_infinite = either_part(a, &ComplexMath::is_infinite);
  Value* b_infinite = either_part(b, &ComplexMath::is_infinite);
  Value* a_finite = both_parts(a, &ComplexMath::is_finite);
  Value* b_finite = both_parts(b, &ComplexMath::is_finite);
  const Complex b_turned = conjugate(b), corners = {corner(a.re), corner(a.im)};
  const Complex of_a = multiply(corners, b_turned);
  const Complex grown = scale(of_a, number(of_a.re, kInfinity));
  const Complex of_b = multiply(a, conjugate({corner(b.re), corner(b.im)}));
  const Complex shrunk = scale(of_b, number(of_b.re, 0));
  Value *not_zero = b_.logical_not(zero), *only_a = both(a_infinite, b_finite);
  q = select(both(only_a, not_zero), grown, q);
  return select(both(b_infinite, a_finite), shrunk, q);
}

Value* ComplexMath::compare(CompareDirection direction, const Complex& a, const Complex& b) {
  if (direction == kEq || direction == kNe) {
    Value *im = b_.compare(direction, a.im, b.im), *re = b_.compare(direction, a.re, b.re);
    return direction == kEq ? b_.logical_and(re, im) : b_.logical_or(re, im);
  }
  Value *by_im = b_.compare(direction, a.im, b.im), *same = b_.compare(kEq, a.re, b.re);
  Value* tie = b_.logical_and(same, by_im);
  const CompareDirection strict = direction == kGe || direction == kGt ? kGt : kLt;
  return b_.logical_or(b_.compare(strict, a.re, b.re), tie);
}

Complex ComplexMath::extreme(Kind kind, const Complex& a, const Complex& b) {
  Value* first = compare(kind == Kind::kMaximum ? kGt : kLt, a, b);
  first = b_.logical_or(first, either_part(a, &ComplexMath::is_nan));
  return select(first, a, b);
}

Value* ComplexMath::absolute(const Complex& a) {
  Value* x = magnitude(a.re);
  Value* y = magnitude(a.im);
  Value* large = b_.max(x, y);
  Value* ratio = b_.div(b_.min(x, y), large);
  Value* root = b_.unary(Kind::kSqrt, plus(b_.mul(ratio, ratio), 1));
  Value* plain = is_zero_or_infinite(large);
  return b_.select(plain, large, b_.mul(large, root));
}

Complex ComplexMath::sign(const Complex& a) {
  // Scaled, since |a| can be infinite or 0 where a is neither.
  Value* p = power_of_two_below(larger_part(a), 0x1p-126, 0x1p126);
  const Complex scaled = {b_.div(a.re, p), b_.div(a.im, p)};
  Value* length = absolute(scaled);
  return where(kEq, length, 0, a, {b_.div(scaled.re, length), b_.div(scaled.im, length)});
}

}  // namespace tpu::compiler
