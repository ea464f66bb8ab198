// What factorisations are written with: stacks of matrices, and loops over their rows.
//   stack    [batch, rows, columns], f32 or f64; a row or column of every matrix keeps its
//            dimension of 1
// Operands of `add`, `mul`, ... of different sizes are spread to one shape where a dimension is 1.
#pragma once

#include <functional>
#include <vector>

#include "legalize/builder.hpp"

namespace tpu::compiler::legalization {

using Values = std::vector<Value*>;

class Matrices {
 public:
  explicit Matrices(Rewriter& rw, Elem number = Elem::kF32) : number_(number), rw_(rw), b_(rw) {}
  // For operands of a type: f64 is computed as such, all else in f32.
  Matrices(Rewriter& rw, const Type& operand)
      : Matrices(rw, operand.elem == Elem::kF64 ? Elem::kF64 : Elem::kF32) {}

  Builder& builder() { return b_; }

  // From and to arrays of the program: any batch dimensions, bf16, f32 or f64.
  Value* stack(Value* x);                    // [..., rows, columns]
  Value* stack_of_rows(Value* x);            // [..., n] as [batch, 1, n]
  Value* unstack(Value* x, const Type& as);  // same elements, type of the program

  // Elementwise, with spreading.
  Value* add(Value* a, Value* b) { return binary(Kind::kAdd, a, b); }
  Value* sub(Value* a, Value* b) { return binary(Kind::kSubtract, a, b); }
  Value* mul(Value* a, Value* b) { return binary(Kind::kMultiply, a, b); }
  Value* div(Value* a, Value* b) { return binary(Kind::kDivide, a, b); }
  Value* both(Value* a, Value* b) { return binary(Kind::kAnd, a, b); }
  Value* unary(Kind kind, Value* x) { return b_.unary(kind, x); }
  Value* compare(CompareDirection direction, Value* a, Value* b);
  Value* select(Value* predicate, Value* on_true, Value* on_false);
  // `on_true` where a is (equal, below, ..) to b.
  Value* where(CompareDirection direction, Value* a, Value* b, Value* on_true, Value* on_false) {
    return select(compare(direction, a, b), on_true, on_false);
  }
  Value* number(double value);           // [1, 1, 1]
  Elem elem() const { return number_; }  // of numbers
  Value* integer(int64_t value);         // i32 [1, 1, 1]
  Value* lift(Value* scalar);            // [] as [1, 1, 1]

  // 0, 1, 2, ... along one dimension of three: i32 [1, n, 1] for dimension 1.
  Value* indices(int64_t n, int64_t dim);
  // The row of each place with its column: i1 [1, rows, columns].
  Value* compare_indices(CompareDirection direction, int64_t rows, int64_t columns);

  // Sums (and other reductions) over one dimension, which stays with size 1.
  Value* sum(Value* x, int64_t dim);
  Value* reduce(Kind kind, Value* x, double init, int64_t dim);
  // The one element (of each matrix) along `dim` where `index` is `at`.
  Value* pick(Value* x, Value* index, Value* at, int64_t dim);

  // The power of two at or below a magnitude: what is divided by it keeps its bits, and its square
  // stays in range.
  Value* scale(Value* magnitude);

  // The first of `rows` from `at` on where `size` is largest; NaN counts as infinite.
  Value* first_largest(Value* size, Value* rows, Value* at);
  // x with the rows i and j exchanged; `rows`: the number of each row.
  Value* swapped(Value* x, Value* rows, Value* i, Value* j);
  // Each array's elements along `dim` in the order of the first array, ascending and stable.
  Values sorted(const Values& arrays, int64_t dim);
  Value* row(Value* x, Value* i);  // i: i32 []
  Value* column(Value* x, Value* i);
  Value* transpose(Value* x) { return b_.transpose(x, {0, 2, 1}); }
  // A row as a column, or back: the same elements in the same order.
  Value* turn(Value* x) { return b_.reshape(x, {dim(x, 0), dim(x, 2), dim(x, 1)}); }
  static int64_t dim(const Value* x, size_t d) { return x->type.dims[d]; }

  // for (i = 0; i < trips; ++i) carried = body(i, carried)
  using Step = std::function<Values(Value* i, const Values& carried)>;
  Values repeat(int64_t trips, const Values& carried, const Step& body);
  // while (condition(carried)) carried = body(carried); the condition is i1 []
  using Test = std::function<Value*(const Values& carried)>;
  using Next = std::function<Values(const Values& carried)>;
  Values loop(const Values& carried, const Test& condition, const Next& body);

 private:
  Value* binary(Kind kind, Value* a, Value* b);
  Value* spread(Value* x, const Dims& dims);
  static Dims common(std::initializer_list<const Value*> values);
  Value* slice_at(Value* x, Value* i, size_t dim);

  const Elem number_;
  Rewriter& rw_;
  Builder b_;
};

}  // namespace tpu::compiler::legalization
