// Complex matrices as real ones of twice the size, a + i b as the block [[a, -b], [b, a]]. Blocks
// multiply as complex numbers do and the transpose of a block is the conjugate, so that the real
// Cholesky factor is that of blocks, and a unit triangular matrix stays one.
#include <numeric>
#include <string>

#include "legalize/complex/complex_ops.hpp"

namespace tpu::compiler {
namespace {

class Blocks {
 public:
  explicit Blocks(Rewriter& rw) : rw_(rw), b_(rw), math_(rw) {}

  Complex cholesky(const Op& op, Complex a) {
    a = without_imaginary_diagonal(a);
    Value* m = block_matrix(a);
    Value* factor = rw_.make(Kind::kCholesky, {m}, m->type, op.attrs);
    return first_columns(factor, a.re->type.dims);
  }

  // Rows are divided by their diagonal elements first: blocks of ones are triangular.
  Complex triangular_solve(const Op& op, Complex a, Complex b) {
    auto attrs = op.as<TriangularSolveAttrs>();
    if (attrs.transpose == attrs.left) {  // x a = b is a^T x^T = b^T
      a = transposed(a);
      attrs.lower = !attrs.lower;
    }
    if (attrs.transpose && attrs.conjugate) {
      a = math_.conjugate(a);
    }
    b = attrs.left ? b : transposed(b);
    if (!attrs.unit_diagonal) {
      const Complex d = diagonal(a);
      a = math_.divide(a, rows_of(d, a.re->type.dims));
      b = math_.divide(b, rows_of(d, b.re->type.dims));
    }
    Value* m = block_matrix(without_imaginary_diagonal(a));
    Value* right = block_rows(b);
    const TriangularSolveAttrs real{.left = true, .lower = attrs.lower, .unit_diagonal = true};
    Value* x = rw_.make(Kind::kTriangularSolve, {m, right}, right->type, real);
    const Complex out = from_block_rows(x, b.re->type.dims);
    return attrs.left ? out : transposed(out);
  }

 private:
  static size_t row_dim(const Dims& dims) { return dims.size() - 2; }

  Complex transposed(const Complex& x) {
    Dims order(x.re->type.dims.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return {b_.transpose(x.re, order), b_.transpose(x.im, order)};
  }

  Value* is_diagonal(const Dims& dims) {
    const Type index{Elem::kI32, dims};
    const auto rank = static_cast<int64_t>(dims.size());
    Value *columns = b_.iota(index, rank - 1), *rows = b_.iota(index, rank - 2);
    return b_.compare(CompareDirection::kEq, rows, columns);
  }

  Complex without_imaginary_diagonal(const Complex& a) {
    Value *zero = b_.zeros_like(a.im), *on_diagonal = is_diagonal(a.re->type.dims);
    return {a.re, b_.select(on_diagonal, zero, a.im)};
  }

  Complex diagonal(const Complex& a) {
    Value* on = is_diagonal(a.re->type.dims);
    Value* zero = b_.splat({Elem::kF32, {}}, 0);
    const auto part = [&](Value* v) {
      return b_.reduce(Kind::kAdd, b_.select(on, v, b_.zeros_like(v)), zero, {v->type.rank() - 1});
    };
    return {part(a.re), part(a.im)};
  }

  // [.., n] as columns of [.., n, m].
  Complex rows_of(const Complex& d, const Dims& dims) {
    Dims where(dims.size() - 1);
    std::iota(where.begin(), where.end(), 0);
    return {b_.broadcast(d.re, dims, where), b_.broadcast(d.im, dims, where)};
  }

  // [.., n, m] to [.., 2 n, 2 m].
  Value* block_matrix(const Complex& a) {
    const Dims& dims = a.re->type.dims;
    Dims apart = dims;
    apart.insert(apart.end() - 1, 1);
    apart.push_back(1);
    const auto rank = static_cast<int64_t>(apart.size());
    Value* re = b_.reshape(a.re, apart);
    Value* im = b_.reshape(a.im, apart);
    Value* upper = b_.concatenate({re, b_.unary(Kind::kNegate, im)}, rank - 1);
    Value* lower = b_.concatenate({im, re}, rank - 1);
    Dims twice = dims;
    twice[row_dim(dims)] *= 2;
    twice.back() *= 2;
    return b_.reshape(b_.concatenate({upper, lower}, rank - 3), twice);
  }

  // [.., n, m] to [.., 2 n, m].
  Value* block_rows(const Complex& x) {
    Dims apart = x.re->type.dims;
    apart.insert(apart.end() - 1, 1);
    const auto dim = static_cast<int64_t>(apart.size()) - 2;
    Dims twice = x.re->type.dims;
    twice[row_dim(twice)] *= 2;
    return b_.reshape(b_.concatenate({b_.reshape(x.re, apart), b_.reshape(x.im, apart)}, dim),
                      twice);
  }

  Complex from_block_rows(Value* x, const Dims& dims) {
    Dims apart = dims;
    apart.insert(apart.end() - 1, 2);
    Value* pairs = b_.reshape(x, apart);
    const auto dim = static_cast<int64_t>(apart.size()) - 2;
    const auto part = [&](int64_t i) {
      return b_.reshape(b_.slice_dim(pairs, dim, i, i + 1), dims);
    };
    Value* re = part(0);
    return {re, part(1)};
  }

  // [.., 2 n, 2 m] to [.., n, m].
  Complex first_columns(Value* m, const Dims& dims) {
    Dims apart = dims;
    apart[row_dim(dims)] *= 2;
    apart.push_back(2);
    const auto last = static_cast<int64_t>(apart.size()) - 1;
    Value* first = b_.slice_dim(b_.reshape(m, apart), last, 0, 1);
    apart.pop_back();
    return from_block_rows(b_.reshape(first, apart), dims);
  }

  Rewriter& rw_;
  Builder b_;
  ComplexMath math_;
};

// Of arrays without elements nothing is to be computed.
std::vector<Complex> complex_zeros(const Op& op, Rewriter& rw) {
  std::vector<Complex> out;
  for (const auto& r : op.results) {
    const Type type = is_complex(r->type.elem) ? part_type(r->type) : r->type;
    Value* zeros = rw.constant(make_splat_int(type, 0));
    out.push_back({zeros, zeros});
  }
  return out;
}

}  // namespace

std::vector<Complex> complex_matrix_op(const Op& op, const std::vector<Complex>& operands,
                                       Rewriter& rw) {
  if (op.operand_type(0).count() == 0 || op.type().count() == 0) {
    return complex_zeros(op, rw);
  }
  Blocks blocks(rw);
  switch (op.kind) {
    case Kind::kLu:
      return complex_lu(op, operands.at(0), rw);
    case Kind::kQr:
      return complex_qr(op, operands.at(0), rw);
    case Kind::kHouseholderProduct:
      return complex_householder_product(op, operands.at(0), operands.at(1), rw);
    case Kind::kCholesky:
      return {blocks.cholesky(op, operands.at(0))};
    case Kind::kTriangularSolve:
      return {blocks.triangular_solve(op, operands.at(0), operands.at(1))};
    case Kind::kEigh:
      return complex_eigh(op, operands.at(0), rw);
    default:
      fail_unknown_kind(op, "complex linear algebra");
  }
}

}  // namespace tpu::compiler
