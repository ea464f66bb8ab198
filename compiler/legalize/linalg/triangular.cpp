// Cholesky factors and triangular systems: one row of the result each step, and what it explains
// is taken from the rows that are left.
#include <limits>

#include "legalize/linalg/linalg.hpp"
#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler::legalization {

// Upper factor u, a = u^T u: row i of what is left of a, divided by the root of its pivot. A pivot
// that is not positive makes the whole factor NaN.
std::vector<Value*> cholesky(const Op& op, Rewriter& rw) {
  Matrices m(rw, op.operand_type(0));
  const bool lower = op.as<CholeskyAttrs>().lower;
  Value* a = m.stack(op.operands[0]);
  const int64_t n = Matrices::dim(a, 1);
  Value* rows = m.indices(n, 1);
  Value* columns = m.indices(n, 2);
  if (lower) {
    a = m.transpose(a);
  }
  Value* least = m.builder().splat({m.elem(), {Matrices::dim(a, 0), 1, 1}},
                                   std::numeric_limits<double>::infinity());
  const Values out = m.repeat(n, {a, least}, [&](Value* i, const Values& carried) -> Values {
    Value* at = m.lift(i);
    Value* left = m.row(carried[0], i);
    Value* pivot = m.pick(left, columns, at, 2);
    Value* none = m.number(0);
    Value* u =
        m.where(CompareDirection::kGe, columns, at, m.div(left, m.unary(Kind::kSqrt, pivot)), none);
    Value* rest = m.sub(carried[0], m.mul(m.turn(u), u));
    Value* next = m.where(CompareDirection::kEq, rows, at, u,
                          m.where(CompareDirection::kGt, rows, at, rest, carried[0]));
    return {next, m.builder().min(carried[1], pivot)};
  });
  Value* factor = m.where(CompareDirection::kGe, columns, rows, out[0], m.number(0));
  Value* valid = m.compare(CompareDirection::kGt, out[1], m.number(0));
  factor = m.select(valid, factor, m.number(std::numeric_limits<double>::quiet_NaN()));
  return {m.unstack(lower ? m.transpose(factor) : factor, op.type())};
}

// x a = b is a^T x^T = b^T; an upper matrix is solved from its last row.
std::vector<Value*> triangular_solve(const Op& op, Rewriter& rw) {
  Matrices m(rw, op.operand_type(0));
  const auto& attrs = op.as<TriangularSolveAttrs>();
  const bool transpose = attrs.transpose == attrs.left;
  const bool lower = attrs.lower != transpose;
  Value* a = m.stack(op.operands[0]);
  Value* columns_of_a = transpose ? a : m.transpose(a);  // row i: column i of what is solved
  Value* b = m.stack(op.operands[1]);
  if (!attrs.left) {
    b = m.transpose(b);
  }
  const int64_t n = Matrices::dim(a, 1);
  Value* rows = m.indices(n, 1);
  const auto behind = lower ? CompareDirection::kGt : CompareDirection::kLt;
  const Values out = m.repeat(n, {b}, [&](Value* step, const Values& carried) -> Values {
    Value* i = lower ? step : m.builder().sub(m.builder().splat_int(step->type, n - 1), step);
    Value* at = m.lift(i);
    Value* column = m.turn(m.row(columns_of_a, i));
    Value* x = m.row(carried[0], i);
    if (!attrs.unit_diagonal) {
      x = m.div(x, m.pick(column, rows, at, 1));
    }
    Value* rest = m.sub(carried[0], m.mul(column, x));
    return {
        m.where(CompareDirection::kEq, rows, at, x, m.where(behind, rows, at, rest, carried[0]))};
  });
  return {m.unstack(attrs.left ? out[0] : m.transpose(out[0]), op.type())};
}

}  // namespace tpu::compiler::legalization
