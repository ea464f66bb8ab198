// 64-bit arithmetic on halves: see wide_math.hpp. Halves that are known to be zero make nothing.
#include "legalize/int64/wide_math.hpp"

#include <bit>

namespace tpu::compiler {

namespace {

using Direction = CompareDirection;

// Amount of a shift by one constant, or -1.
int64_t constant_amount(const Wide& n) {
  const Dense* lo = splat_of(n.lo);
  const Dense* hi = splat_of(n.hi);
  if (lo == nullptr || hi == nullptr) {
    return -1;
  }
  return hi->as_int(0) != 0 || lo->as_int(0) > 64 ? 64 : lo->as_int(0);
}

// How many low bits of an exponent may be set.
int exponent_bits(const Wide& n) {
  const Dense* lo = splat_of(n.lo);
  const Dense* hi = splat_of(n.hi);
  if (lo == nullptr || hi == nullptr) {
    return is_zero(n.hi) ? 32 : 64;
  }
  const auto word = [](const Dense* d) { return static_cast<uint32_t>(d->as_int(0)); };
  return static_cast<int>(std::bit_width((uint64_t{word(hi)} << 32) | word(lo)));
}

}  // namespace

Wide WideMath::constant(const Dims& dims, uint64_t value) {
  const Type half{Elem::kU32, dims};
  return {b_.splat_int(half, static_cast<int64_t>(value & 0xffffffffu)),
          b_.splat_int(half, static_cast<int64_t>(value >> 32))};
}

Value* WideMath::either(Value* a, Value* b) {
  return is_zero(a) ? b : is_zero(b) ? a : b_.logical_or(a, b);
}
Value* WideMath::plus(Value* a, Value* b) { return is_zero(a) ? b : is_zero(b) ? a : b_.add(a, b); }
Value* WideMath::shl(Value* x, Value* n) {
  return is_zero(x) || is_zero(n) ? x : b_.binary(Kind::kShiftLeft, x, n);
}
Value* WideMath::shr(Value* x, Value* n) {
  return is_zero(x) || is_zero(n) ? x : b_.binary(Kind::kShiftRightLogical, x, n);
}
Value* WideMath::sar(Value* x, int64_t n) {
  return is_zero(x) ? x : b_.binary(Kind::kShiftRightArith, x, like(x, n));
}

Wide WideMath::add(const Wide& a, const Wide& b) {
  if (is_zero(b.lo)) {
    return {a.lo, plus(a.hi, b.hi)};
  }
  Value* lo = plus(a.lo, b.lo);
  Value* carry = is_zero(a.lo) ? a.lo : flag(less(lo, b.lo));
  return {lo, plus(plus(a.hi, b.hi), carry)};
}

Wide WideMath::subtract(const Wide& a, const Wide& b) {
  if (is_zero(b.lo)) {
    return {a.lo, is_zero(b.hi) ? a.hi : b_.sub(a.hi, b.hi)};
  }
  Value* high = is_zero(b.hi) ? a.hi : b_.sub(a.hi, b.hi);
  return {b_.sub(a.lo, b.lo), b_.sub(high, flag(less(a.lo, b.lo)))};
}

Wide WideMath::negate(const Wide& a) { return subtract(constant(a.lo->type.dims, 0), a); }

Wide WideMath::multiply(const Wide& a, const Wide& b) {
  Value* high = b_.binary(Kind::kMultiplyHigh, a.lo, b.lo);
  for (const auto& [x, y] : {std::pair{a.lo, b.hi}, std::pair{a.hi, b.lo}}) {
    if (!is_zero(x) && !is_zero(y)) {
      high = plus(high, b_.mul(x, y));
    }
  }
  return {b_.mul(a.lo, b.lo), high};
}

// Squares, and a product for each bit of the exponent.
Wide WideMath::power(const Wide& base, const Wide& exponent, bool is_signed) {
  const Dims& dims = base.lo->type.dims;
  const Wide one = constant(dims, 1);
  Wide result = one;
  Wide square = base;
  const int bits = exponent_bits(exponent);
  for (int bit = 0; bit < bits; ++bit) {
    Value* word = bit < 32 ? exponent.lo : exponent.hi;
    Value* set = b_.logical_and(word, like(word, int64_t{1} << (bit % 32)));
    set = b_.compare(Direction::kNe, set, like(set, 0));
    result = select(set, bit == 0 ? square : multiply(result, square), result);
    if (bit + 1 < bits) {
      square = multiply(square, square);
    }
  }
  if (!is_signed) {
    return result;
  }
  // With a negative exponent the loop has it modulo 2^64: right for 1 and -1.
  const Wide minus_one = constant(dims, ~uint64_t{0});
  Value* is_minus_one = compare(Direction::kEq, base, minus_one, true);
  Value* is_unit = b_.logical_or(compare(Direction::kEq, base, one, true), is_minus_one);
  Value* not_unit = b_.logical_not(is_unit);
  Value* vanishes = b_.logical_and(is_negative(exponent), not_unit);
  return select(vanishes, constant(dims, 0), result);
}

Wide WideMath::bitwise(Kind kind, const Wide& a, const Wide& b) {
  const auto half = [&](Value* x, Value* y) {
    if (is_zero(x) || is_zero(y)) {
      Value* zero = is_zero(x) ? x : y;
      return kind == Kind::kAnd ? zero : zero == x ? y : x;
    }
    return b_.binary(kind, x, y);
  };
  return {half(a.lo, b.lo), half(a.hi, b.hi)};
}

Wide WideMath::invert(const Wide& a) { return {b_.logical_not(a.lo), b_.logical_not(a.hi)}; }

Wide WideMath::select(Value* predicate, const Wide& a, const Wide& b) {
  return {b_.select(predicate, a.lo, b.lo), b_.select(predicate, a.hi, b.hi)};
}

Wide WideMath::extreme(Kind kind, const Wide& a, const Wide& b, bool is_signed) {
  const Direction d = kind == Kind::kMaximum ? Direction::kGt : Direction::kLt;
  return select(compare(d, a, b, is_signed), a, b);
}

// Shifts of 32 and more give 0, so the parts that do not apply vanish by themselves: 32 - n and
// n - 32 wrap to large numbers.
Wide WideMath::left(const Wide& a, Value* n) {
  Value* up = shr(a.lo, b_.sub(like(n, 32), n));
  Value* over = shl(a.lo, b_.sub(n, like(n, 32)));
  Value *low = shl(a.lo, n), *carried = either(up, over);
  return {low, either(shl(a.hi, n), carried)};
}
Wide WideMath::right(const Wide& a, Value* n) {
  Value* down = shl(a.hi, b_.sub(like(n, 32), n));
  Value* over = shr(a.hi, b_.sub(n, like(n, 32)));
  Value* carried = either(down, over);
  return {either(shr(a.lo, n), carried), shr(a.hi, n)};
}

Wide WideMath::shift(Kind kind, const Wide& a, const Wide& amount) {
  const int64_t known = constant_amount(amount);
  Value* zero = like(a.lo, 0);
  const bool arithmetic = kind == Kind::kShiftRightArith;
  if (known == 0) {
    return a;
  }
  if (known >= 32) {
    const int64_t rest = known - 32;
    Value* fill = arithmetic ? sar(a.hi, 31) : zero;
    if (kind == Kind::kShiftLeft) {
      return {zero, rest == 32 ? zero : shl(a.lo, like(a.lo, rest))};
    }
    return {rest == 32 ? fill : arithmetic ? sar(a.hi, rest) : shr(a.hi, rest), fill};
  }
  if (known > 0) {
    Value* n = like(a.lo, known);
    Value* back = like(a.lo, 32 - known);
    if (kind == Kind::kShiftLeft) {
      Value *low = shl(a.lo, n), *carried = shr(a.lo, back);
      return {low, either(shl(a.hi, n), carried)};
    }
    Value* carried = shl(a.hi, back);
    return {either(shr(a.lo, n), carried), arithmetic ? sar(a.hi, known) : shr(a.hi, n)};
  }
  Value* n = amount.lo;  // amounts with a high half are as good as the largest one
  if (!is_zero(amount.hi)) {
    Value* most = like(n, 0xffffffff);
    n = b_.select(b_.compare(Direction::kEq, amount.hi, zero), n, most);
  }
  if (kind == Kind::kShiftLeft) {
    return left(a, n);
  }
  if (!arithmetic) {
    return right(a, n);
  }
  const Wide near = right(a, n);
  Value* far = b_.binary(Kind::kShiftRightArith, a.hi, b_.sub(n, like(n, 32)));
  return {b_.select(less(n, like(n, 32)), near.lo, far),
          b_.binary(Kind::kShiftRightArith, a.hi, n)};
}

Value* WideMath::compare(Direction direction, const Wide& a, const Wide& b, bool is_signed) {
  if (direction == Direction::kEq || direction == Direction::kNe) {
    Value* low = b_.compare(direction, a.lo, b.lo);
    Value* high = b_.compare(direction, a.hi, b.hi);
    return direction == Direction::kEq ? b_.logical_and(low, high) : b_.logical_or(low, high);
  }
  const bool swapped = direction == Direction::kGt || direction == Direction::kLe;
  const Wide& x = swapped ? b : a;
  const Wide& y = swapped ? a : b;
  const auto top = [&](Value* v) { return is_signed ? b_.convert(v, Elem::kI32) : v; };
  Value* same = b_.compare(Direction::kEq, x.hi, y.hi);
  Value* by_low = b_.logical_and(same, less(x.lo, y.lo));
  Value *y_top = top(y.hi), *x_top = top(x.hi);
  Value* result = b_.logical_or(less(x_top, y_top), by_low);
  const bool negated = direction == Direction::kGe || direction == Direction::kLe;
  return negated ? b_.logical_not(result) : result;
}

Value* WideMath::zero_test(const Wide& a) {
  Value* bits = either(a.lo, a.hi);
  return b_.compare(Direction::kEq, bits, like(bits, 0));
}
Value* WideMath::is_negative(const Wide& a) {
  Value* top = b_.convert(a.hi, Elem::kI32);
  return less(top, like(top, 0));
}

Wide WideMath::absolute(const Wide& a) {
  const Wide minus_a = negate(a);
  return select(is_negative(a), minus_a, a);
}

Wide WideMath::sign(const Wide& a, bool is_signed) {
  Value* one = flag(b_.logical_not(zero_test(a)));
  if (!is_signed) {
    return {one, like(one, 0)};
  }
  Value* top = sar(a.hi, 31);
  return {b_.logical_or(top, one), top};
}

Wide WideMath::count_ones(const Wide& a) {
  Value *in_high = b_.unary(Kind::kPopcnt, a.hi), *in_low = b_.unary(Kind::kPopcnt, a.lo);
  Value* n = b_.add(in_low, in_high);
  return {n, like(n, 0)};
}

Wide WideMath::leading_zeros(const Wide& a) {
  Value *word = like(a.lo, 32), *in_low = b_.unary(Kind::kClz, a.lo);
  Value* below = b_.add(in_low, word);
  Value* in_high = b_.unary(Kind::kClz, a.hi);
  Value* n = b_.select(b_.compare(Direction::kEq, a.hi, like(a.hi, 0)), below, in_high);
  return {n, like(n, 0)};
}

// high:low / divisor in 32 bits, high < divisor: two digits of 16 bits, each guessed from the
// divisor's upper half and put right at most twice.
Value* WideMath::divide_long(Value* high, Value* low, Value* divisor) {
  Value* const half = like(high, 0xffff);
  Value* const base = like(high, 0x10000);
  Value* const sixteen = like(high, 16);
  Value* n = b_.unary(Kind::kClz, divisor);
  Value* v = shl(divisor, n);
  Value* v1 = shr(v, 16);
  Value* v0 = b_.logical_and(v, half);
  Value* carried = shr(low, b_.sub(like(n, 32), n));
  Value* top = either(shl(high, n), carried);
  Value* bottom = shl(low, n);
  const auto digit = [&](Value* rest, Value* next) {
    Value* q = b_.div(rest, v1);
    Value* r = b_.sub(rest, b_.mul(q, v1));
    for (int i = 0; i < 2; ++i) {
      Value *most = b_.logical_or(shl(r, sixteen), next), *taken = b_.mul(q, v0);
      Value* over = b_.compare(Direction::kGt, taken, most);
      Value* too_much = b_.logical_or(b_.compare(Direction::kGe, q, base), over);
      too_much = b_.logical_and(too_much, less(r, base));
      q = b_.sub(q, flag(too_much));
      r = b_.select(too_much, b_.add(r, v1), r);
    }
    return q;
  };
  Value* next1 = shr(bottom, 16);
  Value* q1 = digit(top, next1);
  Value* taken = b_.mul(q1, v);
  Value* rest = b_.sub(b_.add(shl(top, sixteen), next1), taken);
  Value* q0 = digit(rest, b_.logical_and(bottom, half));
  return b_.add(shl(q1, sixteen), q0);
}

// A divisor of 32 bits: two long divisions. A larger one: the quotient has 32 bits and is guessed
// from the divisor's upper 32 bits, at most one too small.
WideMath::Division WideMath::divide_unsigned(const Wide& a, const Wide& b) {
  Value* zero = like(a.lo, 0);
  Value* small = b_.compare(Direction::kEq, b.hi, zero);
  Value* q1 = b_.div(a.hi, b.lo);
  Value* carried = b_.sub(a.hi, b_.mul(q1, b.lo));
  Value* n = b_.unary(Kind::kClz, b.hi);
  const Wide upper = left(b, n);
  const Wide halved = right(a, like(n, 1));
  Value* divisor = b_.select(small, b.lo, upper.hi);
  Value* low = b_.select(small, a.lo, halved.lo);
  Value* d = divide_long(b_.select(small, carried, halved.hi), low, divisor);
  Value* guess = shr(d, b_.sub(like(n, 31), n));
  guess = b_.sub(guess, flag(b_.compare(Direction::kNe, guess, zero)));
  const Wide missing = subtract(a, multiply({guess, zero}, b));
  Value* quotient = b_.add(guess, flag(compare(Direction::kGe, missing, b, false)));
  Wide q = select(small, {d, q1}, {quotient, zero});
  Wide r = subtract(a, multiply(q, b));
  Value* none = zero_test(b);
  return {select(none, constant(a.lo->type.dims, ~uint64_t{0}), q), select(none, a, r)};
}

Wide WideMath::divide(const Wide& a, const Wide& b, bool is_signed) {
  if (!is_signed) {
    return divide_unsigned(a, b).quotient;
  }
  const Wide b_size = absolute(b), a_size = absolute(a);
  const Wide q = divide_unsigned(a_size, b_size).quotient;
  Value *b_negative = is_negative(b), *a_negative = is_negative(a);
  Value* differ = b_.binary(Kind::kXor, a_negative, b_negative);
  differ = b_.logical_and(differ, b_.logical_not(zero_test(b)));
  return select(differ, negate(q), q);
}

Wide WideMath::remainder(const Wide& a, const Wide& b, bool is_signed) {
  if (!is_signed) {
    return divide_unsigned(a, b).remainder;
  }
  const Wide b_size = absolute(b), a_size = absolute(a);
  const Wide r = divide_unsigned(a_size, b_size).remainder;
  const Wide minus_r = negate(r);
  return select(is_negative(a), minus_r, r);
}

Wide WideMath::from(Value* x) {
  const Elem e = x->type.elem;
  Value* lo = b_.convert(x, Elem::kU32);
  return {lo, is_signed(e) ? sar(lo, 31) : like(lo, 0)};
}

Wide WideMath::from_float(Value* x, bool is_signed) {
  x = b_.convert(x, Elem::kF32);
  const auto f32 = [&](double value) { return b_.splat(x->type, value); };
  Value* size = is_signed ? b_.unary(Kind::kAbs, x) : x;
  Value* upper = b_.unary(Kind::kFloor, b_.mul(size, f32(0x1p-32)));
  Value* lower = b_.sub(size, b_.mul(upper, f32(0x1p32)));
  Wide out{b_.convert(lower, Elem::kU32), b_.convert(upper, Elem::kU32)};
  const Dims& dims = x->type.dims;
  // NaN and, without a sign, negative numbers give 0.
  const Wide none = constant(dims, 0);
  out = select(b_.compare(Direction::kGt, size, f32(0)), out, none);
  const Wide most = constant(dims, is_signed ? ~uint64_t{0} >> 1 : ~uint64_t{0});
  out = select(b_.compare(Direction::kGe, size, f32(is_signed ? 0x1p63 : 0x1p64)), most, out);
  if (!is_signed) {
    return out;
  }
  const Wide minus_out = negate(out);
  out = select(less(x, f32(0)), minus_out, out);
  const Wide least = constant(dims, uint64_t{1} << 63);
  return select(b_.compare(Direction::kLe, x, f32(-0x1p63)), least, out);
}

Value* WideMath::to(const Wide& a, Elem elem, bool is_signed) {
  if (elem == Elem::kI1) {
    return b_.logical_not(zero_test(a));
  }
  if (!is_float(elem)) {
    return b_.convert(a.lo, elem);
  }
  const Wide size = is_signed ? absolute(a) : a;
  Value* n = leading_zeros(size).lo;
  const Wide moved = left(size, n);
  // The upper 32 bits and whether anything is below them round as the whole number does.
  Value* rest = flag(b_.compare(Direction::kNe, moved.lo, like(moved.lo, 0)));
  Value* f = b_.convert(either(moved.hi, rest), Elem::kF32);
  Value* fraction = like(n, 23);
  Value* exponent = shl(b_.sub(like(n, 127 + 32), n), fraction);
  f = b_.mul(f, b_.bitcast(exponent, {Elem::kF32, exponent->type.dims}));
  if (is_signed) {
    Value* minus_f = b_.unary(Kind::kNegate, f);
    f = b_.select(is_negative(a), minus_f, f);
  }
  return b_.convert(f, elem);
}

Value* WideMath::saturated_index(const Wide& a, bool is_signed) {
  Value* top = is_signed ? sar(a.lo, 31) : like(a.lo, 0);
  Value* fits = b_.compare(Direction::kEq, a.hi, top);
  Value* low = b_.convert(a.lo, Elem::kI32);
  if (!is_signed) {
    fits = b_.logical_and(fits, b_.compare(Direction::kGe, low, like(low, 0)));
  }
  Value* limit = like(low, INT32_MAX);
  if (is_signed) {
    Value* least = like(low, INT32_MIN);
    limit = b_.select(is_negative(a), least, limit);
  }
  return b_.select(fits, low, limit);
}

}  // namespace tpu::compiler
