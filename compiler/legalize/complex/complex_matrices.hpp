// What factorisations of complex matrices are written with: real and imaginary parts of stacks (see
// legalize/linalg/matrices.hpp).
#pragma once

#include "legalize/complex/complex_math.hpp"
#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler {

class ComplexMatrices {
 public:
  explicit ComplexMatrices(Rewriter& rw) : real(rw), math(rw) {}

  Complex stack(const Complex& x) { return {real.stack(x.re), real.stack(x.im)}; }
  Complex unstack(const Complex& x, const Type& as) {
    return {real.unstack(x.re, part_type(as)), real.unstack(x.im, part_type(as))};
  }
  Complex transpose(const Complex& x) { return {real.transpose(x.re), real.transpose(x.im)}; }
  Complex mul(const Complex& a, const Complex& b) {
    Value *im_im = real.mul(a.im, b.im), *re_re = real.mul(a.re, b.re);
    Value* re = real.sub(re_re, im_im);
    Value *im_re = real.mul(a.im, b.re), *re_im = real.mul(a.re, b.im);
    return {re, real.add(re_im, im_re)};
  }
  Complex mul(const Complex& a, Value* b) { return {real.mul(a.re, b), real.mul(a.im, b)}; }
  Complex div(const Complex& a, Value* b) { return {real.div(a.re, b), real.div(a.im, b)}; }
  Complex add(const Complex& a, const Complex& b) {
    return {real.add(a.re, b.re), real.add(a.im, b.im)};
  }
  Complex sub(const Complex& a, const Complex& b) {
    return {real.sub(a.re, b.re), real.sub(a.im, b.im)};
  }
  Complex select(Value* predicate, const Complex& a, const Complex& b) {
    return {real.select(predicate, a.re, b.re), real.select(predicate, a.im, b.im)};
  }
  Complex where(CompareDirection direction, Value* x, Value* y, const Complex& on_true,
                const Complex& on_false) {
    return select(real.compare(direction, x, y), on_true, on_false);
  }
  Complex sum(const Complex& x, int64_t dim) { return {real.sum(x.re, dim), real.sum(x.im, dim)}; }
  Complex pick(const Complex& x, Value* index, Value* at, int64_t dim) {
    return {real.pick(x.re, index, at, dim), real.pick(x.im, index, at, dim)};
  }
  Complex row(const Complex& x, Value* i) { return {real.row(x.re, i), real.row(x.im, i)}; }
  Complex column(const Complex& x, Value* i) {
    return {real.column(x.re, i), real.column(x.im, i)};
  }
  Complex number(double re) { return {real.number(re), real.number(0)}; }

  legalization::Matrices real;
  ComplexMath math;
};

}  // namespace tpu::compiler
