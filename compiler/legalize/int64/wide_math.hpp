// Arithmetic on 64-bit integers that are held as two ui32 arrays, low and high half: what the pass
// `split_wide` makes of each op. Signs are in the ops, not in the halves.
#pragma once

#include "legalize/builder.hpp"

namespace tpu::compiler {

struct Wide {
  Value* lo = nullptr;
  Value* hi = nullptr;
};

class WideMath {
 public:
  explicit WideMath(Rewriter& rw) : b_(rw) {}

  Wide constant(const Dims& dims, uint64_t value);
  Wide add(const Wide& a, const Wide& b);
  Wide subtract(const Wide& a, const Wide& b);
  Wide negate(const Wide& a);
  Wide multiply(const Wide& a, const Wide& b);
  Wide divide(const Wide& a, const Wide& b, bool is_signed);
  Wide remainder(const Wide& a, const Wide& b, bool is_signed);
  Wide power(const Wide& base, const Wide& exponent, bool is_signed);  // wraps; see numerics.md
  Wide bitwise(Kind kind, const Wide& a, const Wide& b);               // and, or, xor
  Wide invert(const Wide& a);
  Wide select(Value* predicate, const Wide& a, const Wide& b);
  Wide extreme(Kind kind, const Wide& a, const Wide& b, bool is_signed);  // maximum, minimum

  // Shifts by any amount; from 64 on nothing is left, or the sign.
  Wide shift(Kind kind, const Wide& a, const Wide& amount);
  Value* compare(CompareDirection direction, const Wide& a, const Wide& b, bool is_signed);

  Wide absolute(const Wide& a);
  Wide sign(const Wide& a, bool is_signed);
  Wide count_ones(const Wide& a);
  Wide leading_zeros(const Wide& a);

  Wide from(Value* x);                                    // convert to 64 bits
  Wide from_float(Value* x, bool is_signed);              // towards zero, saturating, NaN gives 0
  Value* to(const Wide& a, Elem elem, bool is_signed);    // convert; floats round once to f32
  Value* saturated_index(const Wide& a, bool is_signed);  // as i32, clamped

 private:
  struct Division {
    Wide quotient, remainder;
  };
  Division divide_unsigned(const Wide& a, const Wide& b);
  Value* divide_long(Value* high, Value* low, Value* divisor);
  Wide left(const Wide& a, Value* n);
  Wide right(const Wide& a, Value* n);
  Value* like(Value* x, int64_t value) { return b_.splat_int(x->type, value); }
  Value* shl(Value* x, Value* n);
  Value* shr(Value* x, Value* n);
  Value* shr(Value* x, int64_t n) { return shr(x, like(x, n)); }
  Value* sar(Value* x, int64_t n);
  Value* either(Value* a, Value* b);
  Value* plus(Value* a, Value* b);
  Value* flag(Value* predicate) { return b_.convert(predicate, Elem::kU32); }
  Value* zero_test(const Wide& a);  // a == 0
  Value* is_negative(const Wide& a);
  Value* less(Value* a, Value* b) { return b_.compare(CompareDirection::kLt, a, b); }

  Builder b_;
};

}  // namespace tpu::compiler
