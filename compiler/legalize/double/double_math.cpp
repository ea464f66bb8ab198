// See double_math.hpp. Sums and products are error-free transformations (Dekker, Knuth): they hold
// because an f32 operation of the graph rounds once and is never contracted.
#include "legalize/double/double_math.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace tpu::compiler {

namespace {

using Direction = CompareDirection;

// The nearest f32 that a core computes with: no subnormal numbers, one NaN.
float nearest(double x) {
  constexpr double kLeast = 0x1p-126 * (1 - 0x1p-25);  // what rounds to the smallest normal number
  if (std::isnan(x)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::abs(x) < kLeast ? static_cast<float>(std::copysign(0.0, x)) : static_cast<float>(x);
}

std::array<float, 2> parts_of(double value) {
  const float hi = nearest(value);
  return {hi, std::isfinite(hi) && hi != 0 ? nearest(value - hi) : 0.0F};
}

// 0 beside an infinity or a NaN.
Value* low_of_finite(Builder& b, Value* hi, Value* lo) {
  Value* none = b.zeros_like(lo);
  return b.select(b.unary(Kind::kIsFinite, hi), lo, none);
}

}  // namespace

Pair DoubleMath::splat(const Dims& dims, double value) {
  const auto [hi, lo] = parts_of(value);
  const Type type{Elem::kF32, dims};
  return {b_.splat(type, hi), b_.splat(type, lo)};
}

Pair DoubleMath::constant(const Dense& value) {
  const int64_t count = value.splat ? 1 : value.type.count();
  std::array<std::vector<std::byte>, 2> bytes;
  for (int64_t i = 0; i < count; ++i) {
    const auto parts = parts_of(value.as_double(i));
    for (const size_t p : {0u, 1u}) {
      std::array<std::byte, sizeof(float)> raw;
      std::memcpy(raw.data(), &parts[p], sizeof(float));
      bytes[p].insert(bytes[p].end(), raw.begin(), raw.end());
    }
  }
  const auto make = [&](std::vector<std::byte>& part) {
    return rw_.constant({pair_part(value.type), value.splat,
                         std::make_shared<const std::vector<std::byte>>(std::move(part))});
  };
  return {make(bytes[0]), make(bytes[1])};
}

Value* DoubleMath::fma(Value* a, Value* b, Value* c) {
  return rw_.make(Kind::kMultiplyAdd, {a, b, c}, c->type);
}

Pair DoubleMath::exact_sum(Value* a, Value* b) {
  Value* s = b_.add(a, b);
  Value* of_b = b_.sub(s, a);
  Value *rest_of_b = b_.sub(b, of_b), *rest_of_a = b_.sub(a, b_.sub(s, of_b));
  return {s, b_.add(rest_of_a, rest_of_b)};
}

Pair DoubleMath::exact_product(Value* a, Value* b) {
  Value* p = b_.mul(a, b);
  return {p, fma(a, b, negate(p))};
}

Pair DoubleMath::normal(Value* s, Value* e, Value* plain) {
  Value* hi = b_.add(s, e);
  Value* lo = b_.sub(e, b_.sub(hi, s));
  Value* finite = b_.unary(Kind::kIsFinite, hi);
  Value* takes = b_.logical_and(finite, test(Direction::kNe, hi, 0));
  return {b_.select(takes, hi, plain), b_.select(takes, lo, b_.zeros_like(lo))};
}

Pair DoubleMath::add(const Pair& a, const Pair& b) {
  const Pair high = exact_sum(a.hi, b.hi);
  if (is_zero(a.lo) && is_zero(b.lo)) {
    return normal(high.hi, high.lo);
  }
  const Pair low = exact_sum(a.lo, b.lo);
  Value* e = b_.add(high.lo, low.hi);
  Value* s = b_.add(high.hi, e);
  e = b_.add(b_.sub(e, b_.sub(s, high.hi)), low.lo);
  return normal(s, e, high.hi);
}

Pair DoubleMath::multiply(const Pair& a, const Pair& b) {
  const Pair p = exact_product(a.hi, b.hi);
  Value* e = p.lo;
  for (const auto& [x, y] : {std::pair{a.hi, b.lo}, std::pair{a.lo, b.hi}}) {
    if (!is_zero(x) && !is_zero(y)) {
      e = fma(x, y, e);
    }
  }
  return normal(p.hi, e);
}

Pair DoubleMath::divide(const Pair& a, const Pair& b) {
  Value* q = b_.div(a.hi, b.hi);
  Value* minus_q = negate(q);
  Value* rest = fma(minus_q, b.hi, a.hi);
  rest = b_.add(rest, fma(minus_q, b.lo, a.lo));
  return normal(q, b_.div(rest, b.hi));
}

// a - trunc(a / b) b, with the quotient put right where its rounding crossed an integer. Exact up
// to quotients of 2^24; then the error is that of a product of pairs.
Pair DoubleMath::remainder(const Pair& a, const Pair& b) {
  const Pair x = absolute(a), y = absolute(b);
  const Dims& dims = a.hi->type.dims;
  const Pair zero = splat(dims, 0);
  Pair r = subtract(x, multiply(floor(divide(x, y)), y));
  const Pair more = add(r, y);
  r = select(compare(Direction::kLt, r, zero, false), more, r);
  const Pair less = subtract(r, y);
  r = select(compare(Direction::kGe, r, y, false), less, r);
  // The dividend itself where it is below the divisor, also an infinite one.
  r = select(compare(Direction::kLt, x, y, false), x, r);
  Value* plain = b_.binary(Kind::kRemainder, a.hi, b.hi);  // NaN where the remainder is
  Value *r_finite = is_finite(r), *plain_finite = b_.unary(Kind::kIsFinite, plain);
  Value* valid = b_.logical_and(plain_finite, r_finite);
  Value* below_zero = b_.compare(Direction::kLt, a.hi, b_.zeros_like(a.hi));
  r = select(below_zero, negate(r), r);
  // A zero has the sign of the dividend.
  Value *zeros = b_.zeros_like(a.hi), *sign_of_a = b_.unary(Kind::kSign, a.hi);
  Value* signed_zero = b_.mul(sign_of_a, zeros);
  r.hi = b_.select(test(Direction::kEq, r.hi, 0), signed_zero, r.hi);
  return {b_.select(valid, r.hi, plain), b_.select(valid, r.lo, b_.zeros_like(r.lo))};
}

Pair DoubleMath::negate(const Pair& a) { return {negate(a.hi), negate(a.lo)}; }

Pair DoubleMath::absolute(const Pair& a) {
  return {b_.unary(Kind::kAbs, a.hi), where(Direction::kLt, a.hi, 0, negate(a.lo), a.lo)};
}

Pair DoubleMath::sign(const Pair& a) { return from_f32(b_.unary(Kind::kSign, a.hi)); }

Pair DoubleMath::square_root(const Pair& a) {
  Value* s = b_.unary(Kind::kSqrt, a.hi);
  Value* rest = b_.add(fma(negate(s), s, a.hi), a.lo);
  return normal(s, b_.div(rest, b_.add(s, s)));
}

Pair DoubleMath::cube_root(const Pair& a) {
  Value* c = b_.unary(Kind::kCbrt, a.hi);
  const Pair square = exact_product(c, c);
  const Pair rest = subtract(a, multiply(square, from_f32(c)));
  return normal(c, b_.div(rest.hi, b_.mul(square.hi, number(c, 3))));
}

Pair DoubleMath::floor(const Pair& a) {
  Value* hi = b_.unary(Kind::kFloor, a.hi);
  Value* whole = b_.compare(Direction::kEq, hi, a.hi);
  Value *none = b_.zeros_like(a.lo), *below = b_.unary(Kind::kFloor, a.lo);
  Value* e = b_.select(whole, below, none);
  // The sum of both is 0 for 1 - 2^-30; -0 and infinities stay as they are.
  return normal(hi, e, where(Direction::kEq, e, 0, hi, b_.add(hi, e)));
}

Pair DoubleMath::round(const Pair& a, bool ties_to_even) {
  const Pair size = absolute(a);
  const Pair below = floor(size);
  const Dims& dims = a.hi->type.dims;
  const Pair rest = subtract(size, below);
  const Pair half = splat(dims, 0.5);
  Value* up = compare(ties_to_even ? Direction::kGt : Direction::kGe, rest, half, false);
  if (ties_to_even) {
    const Pair halved = scale(below, 0.5);
    Value* odd = compare(Direction::kNe, floor(halved), halved, false);
    up = b_.logical_or(up, b_.logical_and(odd, compare(Direction::kEq, rest, half, false)));
  }
  Pair out = select(up, add(below, splat(dims, 1)), below);
  Value* finite = is_finite(a);
  out = {b_.select(finite, out.hi, size.hi), b_.select(finite, out.lo, size.lo)};
  const Pair minus_out = negate(out);
  return select(has_sign(a.hi), minus_out, out);
}

Value* DoubleMath::has_sign(Value* x) {
  const Type bits{Elem::kI32, x->type.dims};
  Value *zero = b_.splat_int(bits, 0), *word = b_.bitcast(x, bits);
  return b_.compare(Direction::kLt, word, zero);
}

Pair DoubleMath::select(Value* predicate, const Pair& a, const Pair& b) {
  return {b_.select(predicate, a.hi, b.hi), b_.select(predicate, a.lo, b.lo)};
}

Pair DoubleMath::extreme(Kind kind, const Pair& a, const Pair& b) {
  const Direction wins = kind == Kind::kMaximum ? Direction::kGt : Direction::kLt;
  Value* tie = b_.binary(kind, a.lo, b.lo);
  Value* lo = b_.select(b_.compare(wins, b.hi, a.hi), b.lo, tie);
  lo = b_.select(b_.compare(wins, a.hi, b.hi), a.lo, lo);
  Value* hi = b_.binary(kind, a.hi, b.hi);  // NaN, and zeros by their signs
  return {hi, low_of_finite(b_, hi, lo)};
}

Value* DoubleMath::compare(Direction direction, const Pair& a, const Pair& b, bool total) {
  const auto by_high = [&](Direction d) {
    if (!total) {
      return b_.compare(d, a.hi, b.hi);
    }
    return rw_.make(Kind::kCompare, {a.hi, b.hi}, {Elem::kI1, a.hi->type.dims},
                    CompareAttrs{d, CompareType::kTotalOrder});
  };
  Value* by_low = b_.compare(direction, a.lo, b.lo);
  if (direction == Direction::kNe) {
    return b_.logical_or(by_high(direction), by_low);
  }
  Value* tie = b_.logical_and(by_high(Direction::kEq), by_low);
  if (direction == Direction::kEq) {
    return tie;
  }
  const bool greater = direction == Direction::kGe || direction == Direction::kGt;
  return b_.logical_or(by_high(greater ? Direction::kGt : Direction::kLt), tie);
}

Pair DoubleMath::scale(const Pair& a, Value* power) {
  Value* hi = b_.mul(a.hi, power);
  Value* lo = b_.mul(a.lo, power);
  return {hi, low_of_finite(b_, hi, lo)};
}

// In two steps: one power of two has not the range.
Pair DoubleMath::times_power_of_two(const Pair& a, Value* k) {
  const Type integers{Elem::kI32, k->type.dims};
  Value* n = b_.convert(k, Elem::kI32);
  Value* half = b_.binary(Kind::kShiftRightArith, n, b_.splat_int(integers, 1));
  const auto power = [&](Value* e) {
    Value* field = b_.add(e, b_.splat_int(integers, 127));
    return b_.bitcast(b_.binary(Kind::kShiftLeft, field, b_.splat_int(integers, 23)), k->type);
  };
  Value* other_half = power(b_.sub(n, half));
  return scale(scale(a, power(half)), other_half);
}

}  // namespace tpu::compiler
