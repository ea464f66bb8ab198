// Elementary functions of pairs of f32 (double_math.hpp): the f32 instruction gives a first value,
// a series or one step of Newton the rest. Their errors are in docs/numerics.md.
#pragma once

#include "legalize/double/double_math.hpp"

namespace tpu::compiler {

class DoubleFunctions {
 public:
  explicit DoubleFunctions(DoubleMath& math) : m_(math), b_(math.builder()) {}

  // The result of an elementwise op of one or two operands; nothing for ops on bits.
  std::optional<Pair> unary(Kind kind, const Pair& x);
  std::optional<Pair> binary(Kind kind, const Pair& x, const Pair& y);

 private:
  struct Reduced {
    Pair rest;  // x - k step
    Value* k;   // f32
  };
  Pair exp(const Pair& x);
  Pair expm1(const Pair& x);
  Pair log(const Pair& x);
  Pair log1p(const Pair& x);
  Pair log1p_near_zero(const Pair& x);
  Pair tanh(const Pair& x);
  Pair logistic(const Pair& x);
  Pair sine(const Pair& x, bool cosine);
  Pair tangent(const Pair& x);
  Pair erf(const Pair& x);
  Pair power(const Pair& x, const Pair& y);
  Pair atan2(const Pair& y, const Pair& x);

  Pair expm1_near_zero(const Pair& r);  // |r| < 0.45
  Pair every_other_term(const Pair& z, int first, int exact, int last);
  Pair sine_near_zero(const Pair& r);  // |r| <= pi / 4 and a little
  Pair cosine_near_zero(const Pair& r);
  Reduced reduced(const Pair& x, double step, double most);
  Pair or_plain(const Pair& x, Value* plain, Value* takes_plain);

  Pair num(const Pair& like, double value) { return m_.splat(like.hi->type.dims, value); }
  Pair plus(const Pair& x, double value) { return m_.add(x, num(x, value)); }
  Pair times(const Pair& x, double value) { return m_.multiply(x, num(x, value)); }
  // sum of c[i] x^i in f32
  Value* polynomial(Value* x, const std::vector<double>& c);

  DoubleMath& m_;
  Builder& b_;
};

}  // namespace tpu::compiler
