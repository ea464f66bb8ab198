// `LuDecomposition`: LU factors with partial pivoting, as LAPACK's getrf defines them, row numbers
// from 0. The largest element of what is left of a column comes to its diagonal by a swap of rows;
// each matrix of a batch swaps rows of its own, so rows are moved by masks.
#include <algorithm>

#include "legalize/linalg/linalg.hpp"
#include "legalize/linalg/matrices.hpp"

namespace tpu::compiler::legalization {
namespace {

class Lu {
 public:
  Lu(Rewriter& rw, const Type& type)
      : m_(rw, type),
        height_(type.dims[type.dims.size() - 2]),
        steps_(std::min(height_, type.dims.back())),
        rows_(m_.indices(height_, 1)),
        columns_(m_.indices(type.dims.back(), 2)),
        numbers_(m_.indices(steps_, 2)) {}

  std::vector<Value*> run(const Op& op) {
    Value* a = m_.stack(op.operands[0]);
    const int64_t batch = Matrices::dim(a, 0);
    Value* swaps = m_.builder().splat_int({Elem::kI32, {batch, 1, steps_}}, 0);
    Value* order = m_.builder().iota({Elem::kI32, {batch, height_, 1}}, 1);
    const Values out = m_.repeat(steps_, {a, swaps, order},
                                 [&](Value* i, const Values& carried) { return step(i, carried); });
    return {m_.unstack(out[0], op.type(0)), m_.unstack(out[1], op.type(1)),
            m_.unstack(out[2], op.type(2))};
  }

 private:
  using Direction = CompareDirection;

  Values step(Value* i, const Values& carried) {
    Value* at = m_.lift(i);
    Value* from = m_.first_largest(m_.unary(Kind::kAbs, m_.column(carried[0], i)), rows_, at);
    Value* a = m_.swapped(carried[0], rows_, at, from);
    Value* pivots = m_.pick(a, rows_, at, 1);
    Value* pivot = m_.pick(pivots, columns_, at, 2);
    Value* column = m_.pick(a, columns_, at, 2);
    Value* none = m_.compare(Direction::kEq, pivot, m_.number(0));  // then all below are zero
    Value* factor = m_.select(none, column, m_.div(column, pivot));
    Value* with_factor = m_.where(Direction::kEq, columns_, at, factor, a);
    Value* right =
        m_.where(Direction::kGt, columns_, at, m_.sub(a, m_.mul(factor, pivots)), with_factor);
    return {m_.select(m_.compare(Direction::kGt, rows_, at), right, a),
            m_.select(m_.compare(Direction::kEq, numbers_, at), from, carried[1]),
            m_.swapped(carried[2], rows_, at, from)};
  }

  Matrices m_;
  int64_t height_, steps_;
  Value *rows_, *columns_, *numbers_;
};

}  // namespace

std::vector<Value*> lu(const Op& op, Rewriter& rw) { return Lu(rw, op.operand_type(0)).run(op); }

}  // namespace tpu::compiler::legalization
