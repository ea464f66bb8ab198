// Arithmetic on complex64 values that are held as two f32 arrays, real and imaginary part: what the
// pass `split_complex` makes of each op. Special values and errors: docs/numerics.md.
#pragma once

#include "legalize/builder.hpp"

namespace tpu::compiler {

struct Complex {
  Value* re = nullptr;
  Value* im = nullptr;
};

// Of one part of a complex array.
inline Type part_type(const Type& t) { return {Elem::kF32, t.dims}; }

class ComplexMath {
 public:
  explicit ComplexMath(Rewriter& rw) : rw_(rw), b_(rw) {}

  Complex from_real(Value* re) { return {re, b_.zeros_like(re)}; }
  Complex splat(const Type& part, double re, double im);

  Complex add(const Complex& a, const Complex& b);
  Complex subtract(const Complex& a, const Complex& b);
  Complex negate(const Complex& a);
  Complex conjugate(const Complex& a) { return {a.re, negate(a.im)}; }
  Complex multiply(const Complex& a, const Complex& b);
  Complex scale(const Complex& a, Value* factor) {
    return {b_.mul(a.re, factor), b_.mul(a.im, factor)};
  }
  Complex divide(const Complex& a, const Complex& b);
  Complex select(Value* predicate, const Complex& a, const Complex& b);
  // Equal and unequal by both parts; else the order of pairs.
  Value* compare(CompareDirection direction, const Complex& a, const Complex& b);
  Complex extreme(Kind kind, const Complex& a, const Complex& b);  // maximum, minimum

  Value* absolute(const Complex& a);
  Value* phase(const Complex& a) { return b_.binary(Kind::kAtan2, a.im, a.re); }
  Complex sign(const Complex& a);
  Value* larger_part(const Complex& a);  // max(|re|, |im|)

 protected:
  using enum CompareDirection;
  using PartTest = Value* (ComplexMath::*)(Value*);

  // `on_true` where x is (equal, below, ..) to the bound.
  Value* where(CompareDirection direction, Value* x, double bound, Value* on_true,
               Value* on_false) {
    return b_.select(test(direction, x, bound), on_true, on_false);
  }
  Complex where(CompareDirection direction, Value* x, double bound, const Complex& on_true,
                const Complex& on_false) {
    return select(test(direction, x, bound), on_true, on_false);
  }
  Value* both_parts(const Complex& a, PartTest is);
  Value* either_part(const Complex& a, PartTest is);
  Value* sum_of_squares(Value* x, Value* y);

  Value* negate(Value* x) { return b_.unary(Kind::kNegate, x); }
  Value* magnitude(Value* x) { return b_.unary(Kind::kAbs, x); }
  Value* number(const Value* like, double x) { return b_.splat(like->type, x); }
  Value* times(Value* x, double factor) { return b_.mul(x, number(x, factor)); }
  Value* plus(Value* x, double term) { return b_.add(x, number(x, term)); }
  Value* fma(Value* x, Value* y, Value* z) {
    return rw_.make(Kind::kMultiplyAdd, {x, y, z}, z->type);
  }
  Value* test(CompareDirection direction, Value* x, double bound) {
    return b_.compare(direction, x, number(x, bound));
  }
  Value* is_nan(Value* x) { return b_.compare(CompareDirection::kNe, x, x); }
  Value* is_infinite(Value* x) { return test(CompareDirection::kEq, magnitude(x), kInfinity); }
  Value* is_finite(Value* x) { return b_.unary(Kind::kIsFinite, x); }
  Value* is_nothing(Value* x) { return test(CompareDirection::kEq, x, 0); }
  Value* is_zero_or_infinite(Value* x);
  Value* masked(Value* x, int64_t mask);  // the word of an f32
  Value* with_sign_of(Value* magnitude, Value* sign);

  Value* power_of_two_below(Value* x, double low, double high);
  Complex divide_finite(const Complex& a, const Complex& b);
  Complex divided_by_zero(const Complex& a, const Complex& b);

  static constexpr double kInfinity = __builtin_inf();

  Rewriter& rw_;
  Builder b_;
};

}  // namespace tpu::compiler
