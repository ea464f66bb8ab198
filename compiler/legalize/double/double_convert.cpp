// Conversions of pairs: to and from the bits of IEEE binary64, and all other types.
#include <cmath>

#include "legalize/double/double_math.hpp"

namespace tpu::compiler {

namespace {

using Direction = CompareDirection;

constexpr int64_t kBias = 127, kWideBias = 1023;
constexpr int64_t kFraction = 23, kWideFraction = 52;
constexpr int64_t kRest = kWideFraction - kFraction;  // bits of a binary64 that no f32 has: 29

// Ops on words of one shape.
class Words {
 public:
  Words(Builder& b, const Dims& dims) : b_(b), word_{Elem::kU32, dims}, f32_{Elem::kF32, dims} {}

  Value* number(int64_t x) { return b_.splat_int(word_, x); }
  Value* left(Value* x, int64_t n) { return b_.binary(Kind::kShiftLeft, x, number(n)); }
  Value* right(Value* x, int64_t n) { return b_.binary(Kind::kShiftRightLogical, x, number(n)); }
  Value* masked(Value* x, int64_t bits) { return b_.logical_and(x, number(bits)); }
  Value* test(Direction d, Value* x, int64_t n) { return b_.compare(d, x, number(n)); }
  Value* as_float(Value* x) { return b_.bitcast(x, f32_); }
  Value* of_float(Value* x) { return b_.bitcast(x, word_); }
  Value* sign_of(Value* x) { return masked(x, 0x80000000); }
  // 2^(field - 127), for a field of 1 .. 254.
  Value* power(Value* field) { return as_float(left(field, kFraction)); }
  Value* flag(Value* predicate) { return b_.convert(predicate, Elem::kU32); }

 private:
  Builder& b_;
  Type word_, f32_;
};

}  // namespace

// The f32 next to the number: its upper bits without the difference of the biases, plus one where
// the rest is more than half of the last place, or half of an odd one. A carry into the exponent is
// right, also into that of infinity. What is left of the number then is an integer of 29 bits and a
// sign, times a power of two.
Pair DoubleMath::from_bits(Value* bits) {
  Words w(b_, bits->type.dims);
  constexpr int64_t kOffset = kWideBias - kBias, kWideUnit = int64_t{1} << (kWideFraction - 32);
  constexpr int64_t kLeast = int64_t{1} << kFraction, kInfinite = 0x7f800000, kNan = 0x7fc00000;
  Value* low = b_.convert(bits, Elem::kU32);
  Value* high = b_.convert(b_.binary(Kind::kShiftRightLogical, bits, b_.splat_int(bits->type, 32)),
                           Elem::kU32);
  Value* upper = w.masked(high, 0x7fffffff);
  Value* offset = w.number(kOffset << kFraction);
  Value *lower = w.right(low, kRest), *higher = w.left(high, 32 - kRest);
  // Of any exponent, wraps where too small.
  Value* size = b_.sub(b_.logical_or(higher, lower), offset);
  Value* rest = w.masked(low, (int64_t{1} << kRest) - 1);
  Value *nearly_half = w.number((int64_t{1} << (kRest - 1)) - 1), *odd = w.masked(size, 1);
  Value* below_half = b_.add(odd, nearly_half);
  Value* up = w.right(b_.add(rest, below_half), kRest);
  Value* field = w.masked(size, kInfinite);
  size = b_.add(size, up);
  Value* sticky = b_.logical_or(upper, w.flag(w.test(Direction::kNe, low, 0)));
  Value* is_nan = w.test(Direction::kGt, sticky, 0x7ff * kWideUnit);
  Value* large = w.test(Direction::kGe, upper, (kOffset + 2 * kBias + 1) * kWideUnit);
  Value *infinite = w.number(kInfinite), *not_a_number = w.number(kNan);
  size = b_.select(large, b_.select(is_nan, not_a_number, infinite), size);
  // A field of 0 is a subnormal number, which is zero.
  Value* of_size = w.test(Direction::kLt, size, kLeast);
  Value* small = b_.logical_or(w.test(Direction::kLt, upper, kOffset * kWideUnit), of_size);
  size = b_.select(small, w.number(0), size);
  Value* sign = w.sign_of(high);
  Value* hi = w.as_float(b_.logical_or(b_.select(is_nan, w.number(0), sign), size));
  // rest * 2^(exponent - 52): as a fraction of 2^28, times 2^(exponent - 24).
  constexpr int64_t kShift = 24;
  Value* signed_rest = b_.convert(b_.sub(rest, w.left(up, kRest)), Elem::kI32);
  Value* rest_unit = number(hi, std::ldexp(1.0, -28));
  Value* lo = b_.mul(b_.convert(signed_rest, Elem::kF32), rest_unit);
  Value* is_number = w.test(Direction::kLt, size, kInfinite);
  Value* has_rest =
      b_.logical_and(w.test(Direction::kGe, upper, (kOffset + kShift + 1) * kWideUnit), is_number);
  Value *least = w.number(kLeast), *shifted = b_.sub(field, w.number(kShift << kFraction));
  Value* power = b_.select(has_rest, shifted, least);
  lo = b_.mul(lo, w.as_float(power));
  lo = w.as_float(b_.binary(Kind::kXor, w.of_float(lo), sign));
  return {hi, b_.select(has_rest, lo, b_.zeros_like(lo))};
}

// The bits of the high part as a binary64, plus the low part in units of the last place. Below a
// power of two the unit is half as large.
Value* DoubleMath::to_bits(const Pair& a) {
  const Dims& dims = a.hi->type.dims;
  Words w(b_, dims);
  Value* bits = w.of_float(a.hi);
  Value* sign = w.sign_of(bits);
  Value* size = w.masked(bits, 0x7fffffff);
  Value* field = w.right(size, kFraction);
  Value* special = w.test(Direction::kEq, field, 0xff);
  Value* is_zero_value = w.test(Direction::kEq, field, 0);
  const auto offset = [&](int64_t bias) { return w.number(bias << (kWideFraction - 32)); };
  Value *of_numbers = offset(kWideBias - kBias), *of_special = offset(0x7ff - 0xff);
  Value* bias = b_.select(special, of_special, of_numbers);
  Value* high = b_.add(w.right(size, 32 - kRest), bias);
  high = b_.select(is_zero_value, w.number(0), high);
  Value *rest = w.left(size, kRest), *none = w.number(0);
  Value* low = b_.select(is_zero_value, none, rest);
  const Type wide_type{Elem::kU64, dims};
  const auto joined = [&](Value* upper, Value* lower) {
    Value *half = b_.splat_int(wide_type, 32), *word = b_.convert(upper, Elem::kU64);
    Value* shifted = b_.binary(Kind::kShiftLeft, word, half);
    return lower == nullptr ? shifted : b_.logical_or(shifted, b_.convert(lower, Elem::kU64));
  };
  if (is_zero(a.lo)) {
    return joined(b_.logical_or(high, sign), low);
  }
  // The low part with the sign of the high one taken out, in units of the last place.
  Value* part = w.as_float(b_.binary(Kind::kXor, w.of_float(a.lo), sign));
  Value* negative = test(Direction::kLt, part, 0);
  Value* below = b_.logical_and(w.test(Direction::kEq, w.masked(size, 0x7fffff), 0), negative);
  Value* unit = b_.sub(field, w.flag(below));
  constexpr int64_t kScaled = 2 * kBias + 24;  // field of 2^(24 - exponent): 278 - field
  Value* scale_field = b_.binary(Kind::kMaximum, unit, w.number(kScaled - 2 * kBias));
  Value* last_place = number(part, std::ldexp(1.0, 28));
  part = b_.mul(b_.mul(part, w.power(b_.sub(w.number(kScaled), scale_field))), last_place);
  part = b_.unary(Kind::kRoundEven, part);
  Value* finite = b_.logical_not(b_.logical_or(special, is_zero_value));
  part = b_.select(finite, part, b_.zeros_like(part));
  Value* units = b_.convert(b_.convert(b_.convert(part, Elem::kI32), Elem::kI64), Elem::kU64);
  Value* top = joined(sign, nullptr);
  return b_.logical_or(b_.add(joined(high, low), units), top);
}

Pair DoubleMath::from_word(Value* x) {
  const bool is_signed_word = is_signed(x->type.elem);
  Value* sixteen = b_.splat_int(x->type, 16);
  Value* top =
      b_.binary(is_signed_word ? Kind::kShiftRightArith : Kind::kShiftRightLogical, x, sixteen);
  Value* rest = b_.logical_and(x, b_.splat_int(x->type, 0xffff));
  Value* high = b_.convert(top, Elem::kF32);
  Value* low = b_.convert(rest, Elem::kF32);
  return exact_sum(b_.mul(high, number(high, 0x1p16)), low);
}

Pair DoubleMath::from(Value* x) {
  const Elem e = x->type.elem;
  if (is_float(e) || e == Elem::kI1 || (is_integer(e) && elem_bytes(e) < 4)) {
    return from_f32(b_.convert(x, Elem::kF32));
  }
  if (elem_bytes(e) == 4) {
    return from_word(x);
  }
  Value* low = b_.convert(x, Elem::kU32);
  Value* top = b_.binary(is_signed(e) ? Kind::kShiftRightArith : Kind::kShiftRightLogical, x,
                         b_.splat_int(x->type, 32));
  const Pair high = from_word(b_.convert(top, is_signed(e) ? Elem::kI32 : Elem::kU32));
  const Pair rest = from_word(low);
  return add(scale(high, 0x1p32), rest);
}

// Of a number below 2^64, its integer part; both parts are integers behind floor.
Value* DoubleMath::magnitude_to_u64(const Pair& a) {
  const Pair whole = floor(a);
  Value* most = test(Direction::kGe, whole.hi, 0x1p64);  // 2^64 itself, with a negative rest
  Value* high = b_.convert(whole.hi, Elem::kU64);
  high = b_.select(most, b_.zeros_like(high), high);
  Value* low = b_.convert(b_.convert(whole.lo, Elem::kI64), Elem::kU64);
  return b_.add(high, low);
}

Value* DoubleMath::to(const Pair& a, Elem elem) {
  if (is_float(elem)) {
    return b_.convert(a.hi, elem);
  }
  if (elem == Elem::kI1) {
    return test(Direction::kNe, a.hi, 0);
  }
  const int64_t bits = 8 * elem_bytes(elem);
  const bool is_signed_elem = is_signed(elem);
  const Dims& dims = a.hi->type.dims;
  const double limit = std::ldexp(1.0, static_cast<int>(is_signed_elem ? bits - 1 : bits));
  const Type out{elem, dims};
  const Pair size = absolute(a);
  Value* x = b_.convert(magnitude_to_u64(size), elem);
  const uint64_t top = bits == 64 && !is_signed_elem
                           ? ~uint64_t{0}
                           : (uint64_t{1} << (is_signed_elem ? bits - 1 : bits)) - 1;
  Value* too_large = compare(Direction::kGe, size, splat(dims, limit), false);
  x = b_.select(too_large, b_.splat_int(out, static_cast<int64_t>(top)), x);
  Value* negative = test(Direction::kLt, a.hi, 0);
  if (is_signed_elem) {
    Value* lowest = b_.splat_int(out, static_cast<int64_t>(~uint64_t{0} << (bits - 1)));
    x = b_.select(negative, b_.select(too_large, lowest, negate(x)), x);
  } else {
    x = b_.select(negative, b_.zeros_like(x), x);
  }
  Value* is_nan = b_.compare(Direction::kNe, a.hi, a.hi);
  return b_.select(is_nan, b_.zeros_like(x), x);
}

}  // namespace tpu::compiler
