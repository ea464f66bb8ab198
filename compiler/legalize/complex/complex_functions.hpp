// Elementary functions of complex64 values that are held as two f32 arrays. Special values and
// errors: docs/numerics.md.
#pragma once

#include <optional>

#include "legalize/complex/complex_math.hpp"

namespace tpu::compiler {

class ComplexFunctions : public ComplexMath {
 public:
  using ComplexMath::ComplexMath;

  // An elementwise op of StableHLO with complex operands and result; nothing for others.
  std::optional<Complex> unary(Kind kind, const Complex& a);
  std::optional<Complex> binary(Kind kind, const Complex& a, const Complex& b);

 private:
  struct Double {  // an unevaluated sum
    Value* hi;
    Value* lo;
  };
  struct Hyperbolic {
    Value* sinh;
    Value* cosh;
  };

  Complex exponential(const Complex& a);
  Complex exponential_minus_one(const Complex& a);
  Complex log(const Complex& a);
  Complex log_plus_one(const Complex& a);
  Complex logistic(const Complex& a);
  Complex sqrt(const Complex& a);
  Complex rsqrt(const Complex& a);
  Complex cbrt(const Complex& a);
  Complex sine(const Complex& a);
  Complex cosine(const Complex& a);
  Complex tan(const Complex& a);
  Complex tanh(const Complex& a);
  Complex power(const Complex& a, const Complex& b);
  Complex atan2(const Complex& y, const Complex& x);

  Double two_sum(Value* a, Value* b);
  Double square(Value* x);
  // first + x^2 + y^2 with one rounding or so
  Value* squares_plus(Value* first, Value* x, Value* y);
  Value* log_of_absolute(const Complex& a);
  Hyperbolic hyperbolic(Value* x);
};

}  // namespace tpu::compiler
