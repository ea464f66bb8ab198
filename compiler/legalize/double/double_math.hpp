// Arithmetic on f64 numbers that are held as the sum of two f32 arrays, the nearest f32 and the
// rest: about 48 bits of significand, the exponent range of f32. What the pass `split_double`
// makes of each op. Where the high part is not finite, the low part is zero.
//   before   y = multiply(a, b) : f64[4]
//   after    p = a_hi * b_hi; e = fma(a_hi, b_hi, -p) + a_hi * b_lo + a_lo * b_hi : f32[4]
//            hi = p + e; lo = e - (hi - p)
#pragma once

#include <optional>

#include "legalize/builder.hpp"

namespace tpu::compiler {

struct Pair {
  Value* hi = nullptr;
  Value* lo = nullptr;
};

inline Type pair_part(const Type& t) { return {Elem::kF32, t.dims}; }

class DoubleMath {
 public:
  explicit DoubleMath(Rewriter& rw) : rw_(rw), b_(rw) {}

  // The pair next to a number, in every element; parts of a constant.
  Pair splat(const Dims& dims, double value);
  Pair constant(const Dense& value);

  Pair add(const Pair& a, const Pair& b);
  Pair subtract(const Pair& a, const Pair& b) { return add(a, negate(b)); }
  Pair multiply(const Pair& a, const Pair& b);
  Pair divide(const Pair& a, const Pair& b);
  Pair remainder(const Pair& a, const Pair& b);
  Pair negate(const Pair& a);
  Pair absolute(const Pair& a);
  Pair sign(const Pair& a);
  Pair square_root(const Pair& a);
  Pair cube_root(const Pair& a);
  Pair floor(const Pair& a);
  Pair round(const Pair& a, bool ties_to_even);  // else ties away from zero
  Pair select(Value* predicate, const Pair& a, const Pair& b);
  // `on_true` where x is (equal, below, ..) to the bound.
  Pair where(CompareDirection direction, Value* x, double bound, const Pair& on_true,
             const Pair& on_false) {
    return select(test(direction, x, bound), on_true, on_false);
  }
  Value* where(CompareDirection direction, Value* x, double bound, Value* on_true,
               Value* on_false) {
    return b_.select(test(direction, x, bound), on_true, on_false);
  }
  Pair extreme(Kind kind, const Pair& a, const Pair& b);  // maximum, minimum
  Value* compare(CompareDirection direction, const Pair& a, const Pair& b, bool total);
  Value* is_finite(const Pair& a) { return b_.unary(Kind::kIsFinite, a.hi); }

  // A power of two, exact but for overflow and underflow.
  Pair scale(const Pair& a, Value* power);
  Pair scale(const Pair& a, double power) { return scale(a, b_.splat(a.hi->type, power)); }

  Pair times_power_of_two(const Pair& a, Value* k);  // a 2^k, k whole, at most 252 up or down

  Pair from_f32(Value* x) { return {x, b_.zeros_like(x)}; }
  Pair from(Value* x);                  // convert from any type but f64
  Value* to(const Pair& a, Elem elem);  // convert; integers saturate, NaN gives 0
  Pair from_bits(Value* bits);          // ui64, IEEE binary64
  Value* to_bits(const Pair& a);        // ui64; of a number the nearest binary64

  // s + e with s next to it; `plain` is the result in f32, of zeros and where s is not finite.
  Pair normal(Value* s, Value* e, Value* plain);
  Pair normal(Value* s, Value* e) { return normal(s, e, s); }
  Pair exact_sum(Value* a, Value* b);      // two_sum
  Pair exact_product(Value* a, Value* b);  // with one fused multiply-add

  Builder& builder() { return b_; }
  Value* number(Value* like, double value) { return b_.splat(like->type, value); }
  Value* fma(Value* a, Value* b, Value* c);
  Value* has_sign(Value* x);  // the sign bit, of zeros too
  Value* negate(Value* x) { return b_.unary(Kind::kNegate, x); }
  Value* test(CompareDirection direction, Value* x, double value) {
    return b_.compare(direction, x, number(x, value));
  }

 private:
  Pair from_word(Value* x);  // i32, ui32: exact
  Value* magnitude_to_u64(const Pair& a);

  Rewriter& rw_;
  Builder b_;
};

}  // namespace tpu::compiler
