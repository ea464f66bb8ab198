// LU and QR factors of complex matrices as loops over their columns, as LAPACK's cgetrf, cgeqrf and
// cungqr define them. The same for real matrices: legalize/linalg/.
#include <algorithm>

#include "legalize/complex/complex_matrices.hpp"
#include "legalize/complex/complex_ops.hpp"

namespace tpu::compiler {
namespace {

using legalization::Matrices;
using legalization::Values;
using Direction = CompareDirection;

class ComplexLu {
 public:
  ComplexLu(Rewriter& rw, const Type& type)
      : c_(rw),
        m_(c_.real),
        height_(type.dims[type.dims.size() - 2]),
        steps_(std::min(height_, type.dims.back())),
        rows_(m_.indices(height_, 1)),
        columns_(m_.indices(type.dims.back(), 2)),
        numbers_(m_.indices(steps_, 2)) {}

  std::vector<Complex> run(const Op& op, const Complex& matrix) {
    const Complex a = c_.stack(matrix);
    const int64_t batch = Matrices::dim(a.re, 0);
    Value* swaps = m_.builder().splat_int({Elem::kI32, {batch, 1, steps_}}, 0);
    Value* order = m_.builder().iota({Elem::kI32, {batch, height_, 1}}, 1);
    const Values out = m_.repeat(steps_, {a.re, a.im, swaps, order},
                                 [&](Value* i, const Values& carried) { return step(i, carried); });
    return {c_.unstack({out[0], out[1]}, op.type(0)),
            {m_.unstack(out[2], op.type(1)), nullptr},
            {m_.unstack(out[3], op.type(2)), nullptr}};
  }

 private:
  Values step(Value* i, const Values& carried) {
    Value* at = m_.lift(i);
    const Complex before = {carried[0], carried[1]};
    Value* from = m_.first_largest(magnitude(c_.column(before, i)), rows_, at);
    const Complex a = {m_.swapped(before.re, rows_, at, from),
                       m_.swapped(before.im, rows_, at, from)};
    const Complex pivots = c_.pick(a, rows_, at, 1);
    const Complex pivot = c_.pick(pivots, columns_, at, 2);
    const Complex column = c_.pick(a, columns_, at, 2);
    Value* zero = m_.number(0);
    Value* im_zero = m_.compare(Direction::kEq, pivot.im, zero);
    Value* re_zero = m_.compare(Direction::kEq, pivot.re, zero);
    Value* none = m_.both(re_zero, im_zero);  // then all below are zero
    const Complex one = c_.math.splat(pivot.re->type, 1, 0);
    const Complex factor = c_.select(none, column, c_.mul(column, c_.math.divide(one, pivot)));
    const Complex with_factor = c_.where(Direction::kEq, columns_, at, factor, a);
    const Complex right =
        c_.where(Direction::kGt, columns_, at, c_.sub(a, c_.mul(factor, pivots)), with_factor);
    const Complex next = c_.select(m_.compare(Direction::kGt, rows_, at), right, a);
    return {next.re, next.im, m_.select(m_.compare(Direction::kEq, numbers_, at), from, carried[2]),
            m_.swapped(carried[3], rows_, at, from)};
  }

  // LAPACK's magnitude of an element: |re| + |im|.
  Value* magnitude(const Complex& x) {
    Value *im = m_.unary(Kind::kAbs, x.im), *re = m_.unary(Kind::kAbs, x.re);
    return m_.add(re, im);
  }

  ComplexMatrices c_;
  Matrices& m_;
  int64_t height_, steps_;
  Value *rows_, *columns_, *numbers_;
};

// H = 1 - tau v v^H. Matrices are held transposed, so that a column is a row of the array.
class ComplexQr {
 public:
  explicit ComplexQr(Rewriter& rw) : c_(rw), m_(c_.real) {}

  std::vector<Complex> factors(const Op& op, const Complex& matrix) {
    const Complex a = c_.transpose(c_.stack(matrix));
    const int64_t batch = Matrices::dim(a.re, 0), columns = Matrices::dim(a.re, 1);
    const int64_t rows = Matrices::dim(a.re, 2), steps = std::min(rows, columns);
    Value* places = m_.indices(rows, 2);
    Value* own = m_.indices(columns, 1);
    Value* numbers = m_.indices(steps, 2);
    const Complex taus = c_.math.splat({Elem::kF32, {batch, 1, steps}}, 0, 0);
    const auto step = [&](Value* i, const Values& carried) -> Values {
      Value* at = m_.lift(i);
      const Complex before = {carried[0], carried[1]}, done = {carried[2], carried[3]};
      const Complex column = c_.row(before, i);
      const Reflector h = reflector(column, places, at);
      const Complex packed =
          c_.where(Direction::kGt, places, at, h.v,
                   c_.where(Direction::kEq, places, at, {h.beta, m_.number(0)}, column));
      const Complex rest = reflect(before, h.v, c_.math.conjugate(h.tau));
      const Complex next = c_.where(Direction::kEq, own, at, packed,
                                    c_.where(Direction::kGt, own, at, rest, before));
      const Complex all = c_.select(m_.compare(Direction::kEq, numbers, at), h.tau, done);
      return {next.re, next.im, all.re, all.im};
    };
    const Values out = m_.repeat(steps, {a.re, a.im, taus.re, taus.im}, step);
    return {c_.unstack(c_.transpose({out[0], out[1]}), op.type(0)),
            c_.unstack({out[2], out[3]}, op.type(1))};
  }

  // The first columns of H0 H1 ... of the identity, the last reflector first.
  std::vector<Complex> product(const Op& op, const Complex& matrix, const Complex& factors) {
    const Complex a = c_.transpose(c_.stack(matrix));
    const int64_t batch = Matrices::dim(a.re, 0), columns = Matrices::dim(a.re, 1);
    Value* places = m_.indices(Matrices::dim(a.re, 2), 2);
    Value* same = m_.compare(Direction::kEq, m_.indices(columns, 1), places);
    Value* one = m_.builder().splat({Elem::kF32, {batch, 1, 1}}, 1);
    Value* identity = m_.select(same, one, m_.number(0));
    Complex q = {identity, m_.builder().zeros_like(identity)};
    const int64_t steps = op.operand_type(1).dims.back();
    if (steps > 0) {
      const Complex taus = {m_.stack_of_rows(factors.re), m_.stack_of_rows(factors.im)};
      Value* numbers = m_.indices(steps, 2);
      const Values out =
          m_.repeat(steps, {q.re, q.im}, [&](Value* step, const Values& carried) -> Values {
            Value* i = m_.builder().sub(m_.builder().splat_int(step->type, steps - 1), step);
            Value* at = m_.lift(i);
            const Complex none = c_.number(0);
            const Complex tail = c_.where(Direction::kGt, places, at, c_.row(a, i), none);
            const Complex v = c_.where(Direction::kEq, places, at, c_.number(1), tail);
            const Complex next =
                reflect({carried[0], carried[1]}, v, c_.pick(taus, numbers, at, 2));
            return {next.re, next.im};
          });
      q = {out[0], out[1]};
    }
    return {c_.unstack(c_.transpose(q), op.type())};
  }

 private:
  struct Reflector {
    Complex v;    // [batch, 1, rows]
    Value* beta;  // [batch, 1, 1]: the real number that it makes of the column's first element
    Complex tau;  // [batch, 1, 1]
  };

  // Makes everything behind `at` zero, and what is there real. Where that is so: tau = 0.
  Reflector reflector(const Complex& column, Value* places, Value* at) {
    Value* zero = m_.number(0);
    const Complex none = c_.number(0);
    Complex left = c_.select(m_.compare(Direction::kGe, places, at), column, none);
    Value* size = c_.math.larger_part(left);
    Value* scale = m_.scale(m_.reduce(Kind::kMaximum, size, 0, 2));
    left = c_.div(left, scale);
    const Complex alpha = c_.pick(left, places, at, 2);
    const Complex tail = c_.select(m_.compare(Direction::kGt, places, at), left, none);
    Value *im_square = m_.mul(tail.im, tail.im), *re_square = m_.mul(tail.re, tail.re);
    Value* rest = m_.sum(m_.add(re_square, im_square), 2);
    rest = m_.add(rest, m_.mul(alpha.im, alpha.im));
    Value* norm = m_.unary(Kind::kSqrt, m_.add(m_.mul(alpha.re, alpha.re), rest));
    Value* idle = m_.compare(Direction::kEq, rest, zero);
    Value* against = m_.where(Direction::kLt, alpha.re, zero, norm, m_.unary(Kind::kNegate, norm));
    Value* beta = m_.select(idle, alpha.re, against);
    const Complex tau = c_.select(
        idle, none,
        {m_.div(m_.sub(beta, alpha.re), beta), m_.div(m_.unary(Kind::kNegate, alpha.im), beta)});
    const Complex one = c_.math.splat(alpha.re->type, 1, 0);
    const Complex inverse = c_.math.divide(one, {m_.sub(alpha.re, beta), alpha.im});
    const Complex scaled = c_.select(idle, none, c_.mul(tail, inverse));
    const Complex v = c_.where(Direction::kEq, places, at, c_.number(1), scaled);
    return {v, m_.mul(beta, scale), tau};
  }

  // x - tau v (v^H x) for each column x, held as a row.
  Complex reflect(const Complex& x, const Complex& v, const Complex& tau) {
    const Complex along = c_.sum(c_.mul(x, c_.math.conjugate(v)), 2);
    return c_.sub(x, c_.mul(c_.mul(along, tau), v));
  }

  ComplexMatrices c_;
  Matrices& m_;
};

}  // namespace

std::vector<Complex> complex_lu(const Op& op, const Complex& a, Rewriter& rw) {
  return ComplexLu(rw, op.operand_type(0)).run(op, a);
}

std::vector<Complex> complex_qr(const Op& op, const Complex& a, Rewriter& rw) {
  return ComplexQr(rw).factors(op, a);
}

std::vector<Complex> complex_householder_product(const Op& op, const Complex& a,
                                                 const Complex& taus, Rewriter& rw) {
  return ComplexQr(rw).product(op, a, taus);
}

}  // namespace tpu::compiler
