// dot_general and convolution of pairs on the matrix units: the scheme of Ozaki, Ogita, Oishi and
// Rump. Rows of one operand and columns of the other are scaled to numbers below 1 and cut into
// slices of few bits, which bf16 holds. Products of slices, and their sums, fit into f32.
//   before   y = dot_general(a, b) : f64[m,n]
//   after    a = 2^e (a1 + a2 + ..), b = 2^f (b1 + b2 + ..) : bf16, ai of multiples of 2^(1 - 8 i)
//            y = 2^(e + f) (a1 b1 + (a1 b2 + a2 b1) + ..) : a dot_general for each bracket, in f32
// The error is relative to the largest numbers of the row and the column: docs/numerics.md.
#pragma once

#include <optional>

#include "legalize/double/double_math.hpp"

namespace tpu::compiler {

// How operands are cut for sums of `terms` products. Products of slice i and slice j belong to
// bracket i + j - 1; the sums of the first `exact` brackets are not rounded.
struct SlicePlan {
  int bits = 0;   // of a slice, its sign included
  int count = 0;  // of slices, and of brackets
  int exact = 0;
};
std::optional<SlicePlan> slice_plan(int64_t terms);  // nothing: too many terms

// True if the matrix units compute the contraction of f64 arrays: it has many products for each
// element, not too many terms, and its precision is not `highest`. Over several cores convolutions
// have no other form.
bool contracts_by_slices(const Op& op, int64_t cores);

class DoubleContraction {
 public:
  DoubleContraction(Rewriter& rw, DoubleMath& math) : rw_(rw), m_(math), b_(rw) {}

  Pair run(const Op& op, const Pair& x, const Pair& y);

 private:
  struct Side {
    std::vector<Value*> slices;
    Value* exponent = nullptr;  // f32, of the dims that have a scale of their own
    Value* special = nullptr;   // bf16: infinities and NaN as they are, the signs of all else
  };
  Side cut(const Pair& x, const Dims& scaled_together, const SlicePlan& plan);
  std::vector<Value*> slices_of(Pair x, const SlicePlan& plan);
  Value* sum_of(const Op& op, const std::vector<Value*>& x, const std::vector<Value*>& y);
  Pair added(const Op& op, const Side& x, const Side& y, const SlicePlan& plan);

  Rewriter& rw_;
  DoubleMath& m_;
  Builder b_;
};

}  // namespace tpu::compiler
