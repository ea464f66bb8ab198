// Householder reflections: `Qr` and the product of its reflectors, as LAPACK's geqrf and orgqr
// define them. H = 1 - tau v v^T, v is 1 at its own place and 0 before it. Matrices are held
// transposed, so that a column is a row of the array.
#include <algorithm>

#include "legalize/linalg/linalg.hpp"
#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler::legalization {
namespace {

struct Reflector {
  Value* v;     // [batch, 1, rows]
  Value* beta;  // [batch, 1, 1]: what it makes of the column's first element
  Value* tau;   // [batch, 1, 1]
};

// Makes everything behind `at` zero. Where all of it is zero already: tau = 0, nothing changes.
Reflector reflector(Matrices& m, Value* column, Value* places, Value* at) {
  Value* zero = m.number(0);
  Value* left = m.select(m.compare(CompareDirection::kGe, places, at), column, zero);
  Value* scale = m.scale(m.reduce(Kind::kMaximum, m.unary(Kind::kAbs, left), 0, 2));
  left = m.div(left, scale);
  Value* alpha = m.pick(left, places, at, 2);
  Value* tail = m.select(m.compare(CompareDirection::kGt, places, at), left, zero);
  Value* rest = m.sum(m.mul(tail, tail), 2);
  Value* norm = m.unary(Kind::kSqrt, m.add(m.mul(alpha, alpha), rest));
  Value* none = m.compare(CompareDirection::kEq, rest, zero);
  Value* against = m.where(CompareDirection::kLt, alpha, zero, norm, m.unary(Kind::kNegate, norm));
  Value* beta = m.select(none, alpha, against);
  Value* tau = m.select(none, zero, m.div(m.sub(beta, alpha), beta));
  Value* scaled = m.select(none, zero, m.div(tail, m.sub(alpha, beta)));
  Value* v = m.where(CompareDirection::kEq, places, at, m.number(1), scaled);
  return {v, m.mul(beta, scale), tau};
}

// x^T H, x^T held as an array.
Value* reflect(Matrices& m, Value* x, Value* v, Value* tau) {
  return m.sub(x, m.mul(m.mul(m.sum(m.mul(x, v), 2), tau), v));
}

}  // namespace

std::vector<Value*> qr(const Op& op, Rewriter& rw) {
  Matrices m(rw, op.operand_type(0));
  Value* a = m.transpose(m.stack(op.operands[0]));
  const int64_t batch = Matrices::dim(a, 0), columns = Matrices::dim(a, 1);
  const int64_t rows = Matrices::dim(a, 2), steps = std::min(rows, columns);
  Value* places = m.indices(rows, 2);
  Value* own = m.indices(columns, 1);
  Value* numbers = m.indices(steps, 2);
  Value* taus = m.builder().splat({m.elem(), {batch, 1, steps}}, 0);
  const Values out = m.repeat(steps, {a, taus}, [&](Value* i, const Values& carried) -> Values {
    Value* at = m.lift(i);
    Value* column = m.row(carried[0], i);
    const Reflector h = reflector(m, column, places, at);
    Value* packed = m.where(CompareDirection::kGt, places, at, h.v,
                            m.where(CompareDirection::kEq, places, at, h.beta, column));
    Value* rest = reflect(m, carried[0], h.v, h.tau);
    Value* next = m.where(CompareDirection::kEq, own, at, packed,
                          m.where(CompareDirection::kGt, own, at, rest, carried[0]));
    return {next, m.select(m.compare(CompareDirection::kEq, numbers, at), h.tau, carried[1])};
  });
  return {m.unstack(m.transpose(out[0]), op.type(0)), m.unstack(out[1], op.type(1))};
}

// The first columns of H0 H1 ... of the identity, the last reflector first.
std::vector<Value*> householder_product(const Op& op, Rewriter& rw) {
  Matrices m(rw, op.operand_type(0));
  Value* a = m.transpose(m.stack(op.operands[0]));
  const int64_t batch = Matrices::dim(a, 0), columns = Matrices::dim(a, 1);
  const int64_t rows = Matrices::dim(a, 2);
  Value* places = m.indices(rows, 2);
  Value* same = m.compare(CompareDirection::kEq, m.indices(columns, 1), places);
  Value* one = m.builder().splat({m.elem(), {batch, 1, 1}}, 1);
  Value* q = m.select(same, one, m.number(0));
  const int64_t steps = op.operand_type(1).dims.back();
  if (steps > 0) {
    Value* taus = m.stack_of_rows(op.operands[1]);
    Value* numbers = m.indices(steps, 2);
    q = m.repeat(steps, {q}, [&](Value* step, const Values& carried) -> Values {
      Value* i = m.builder().sub(m.builder().splat_int(step->type, steps - 1), step);
      Value* at = m.lift(i);
      Value* none = m.number(0);
      Value* tail = m.where(CompareDirection::kGt, places, at, m.row(a, i), none);
      Value* v = m.where(CompareDirection::kEq, places, at, m.number(1), tail);
      return {reflect(m, carried[0], v, m.pick(taus, numbers, at, 2))};
    })[0];
  }
  return {m.unstack(m.transpose(q), op.type())};
}

}  // namespace tpu::compiler::legalization
