// Type rules of factorisations and solvers: matrices are the last two dimensions, and those before
// them are the same in all operands and results.
#include <algorithm>

#include "ir/verify_rule.hpp"

namespace tpu::compiler {
namespace {

// `batch` with the sizes of one matrix or vector behind it.
Dims behind(Dims batch, std::initializer_list<int64_t> sizes) {
  batch.insert(batch.end(), sizes);
  return batch;
}

}  // namespace

void MatrixRule::matrix_op() const {
  const Type& a = in(0);
  check((is_float(a.elem) || is_complex(a.elem)) && a.rank() >= 2, "must take matrices of floats");
  const Dims batch(a.dims.begin(), a.dims.end() - 2);
  const int64_t rows = a.dims[a.dims.size() - 2];
  const int64_t columns = a.dims.back();
  const int64_t steps = std::min(rows, columns);
  const auto is = [&](const Type& t, Elem e, std::initializer_list<int64_t> sizes) {
    check(t == Type{e, behind(batch, sizes)}, "operands and results do not fit each other");
  };
  switch (op_.kind) {
    case Kind::kCholesky:
      check(rows == columns, "the matrix must be square");
      return is(out(), a.elem, {rows, rows});
    case Kind::kTriangularSolve: {
      check(rows == columns, "the matrix must be square");
      const Type& b = in(1);
      check(b.rank() == a.rank() && b == out(), "the result must be as the right side");
      const bool left = op_.as<TriangularSolveAttrs>().left;
      const int64_t others = b.dims[b.dims.size() - (left ? 1 : 2)];
      return left ? is(b, a.elem, {rows, others}) : is(b, a.elem, {others, rows});
    }
    case Kind::kQr:
      is(out(0), a.elem, {rows, columns});
      return is(out(1), a.elem, {steps});
    case Kind::kHouseholderProduct: {
      check(columns <= rows, "the matrix must have as many rows as columns, or more");
      const int64_t reflectors = in(1).rank() == 0 ? 0 : in(1).dims.back();
      check(reflectors <= columns, "there are more reflectors than columns");
      is(in(1), a.elem, {reflectors});
      return is(out(), a.elem, {rows, columns});
    }
    case Kind::kLu:
      is(out(0), a.elem, {rows, columns});
      is(out(1), Elem::kI32, {steps});
      return is(out(2), Elem::kI32, {rows});
    case Kind::kEigh:
      check(rows == columns, "the matrix must be square");
      is(out(0), a.elem, {rows, rows});
      return is(out(1), is_complex(a.elem) ? Elem::kF32 : a.elem, {rows});
    default:
      fail_unknown_kind(op_, "the verifier of linear algebra");
  }
}

}  // namespace tpu::compiler
