// Short names for making graph ops while an op is lowered. Everything is made at the place of the
// op under treatment (see rewriter.hpp), with its location. Types follow from the operands.
#pragma once

#include <utility>
#include <vector>

#include "passes/rewriter.hpp"

namespace tpu::compiler {

class Builder {
 public:
  explicit Builder(Rewriter& rw) : rw_(rw) {}

  // Elementwise; both operands of one type.
  Value* unary(Kind kind, Value* x);  // result type = operand type (is_finite: i1)
  Value* binary(Kind kind, Value* a, Value* b);
  Value* add(Value* a, Value* b) { return binary(Kind::kAdd, a, b); }
  Value* sub(Value* a, Value* b) { return binary(Kind::kSubtract, a, b); }
  Value* mul(Value* a, Value* b) { return binary(Kind::kMultiply, a, b); }
  Value* div(Value* a, Value* b) { return binary(Kind::kDivide, a, b); }
  Value* max(Value* a, Value* b) { return binary(Kind::kMaximum, a, b); }
  Value* min(Value* a, Value* b) { return binary(Kind::kMinimum, a, b); }
  Value* logical_and(Value* a, Value* b) { return binary(Kind::kAnd, a, b); }
  Value* logical_or(Value* a, Value* b) { return binary(Kind::kOr, a, b); }
  Value* logical_not(Value* x) { return unary(Kind::kNot, x); }
  Value* compare(CompareDirection direction, Value* a, Value* b);  // by the element type
  Value* select(Value* predicate, Value* on_true, Value* on_false);
  Value* convert(Value* x, Elem elem);  // the value itself if it has the type
  Value* bitcast(Value* x, Type type);  // bitcast_convert; the value itself if it has the type

  // Constants of any shape.
  Value* splat(const Type& type, double value);
  Value* splat_int(const Type& type, int64_t value);
  Value* zeros_like(Value* x) { return splat_int(x->type, 0); }  // all bits zero in any type
  Value* iota(const Type& type, int64_t dim);

  // Views and moves.
  Value* reshape(Value* x, Dims dims);
  Value* transpose(Value* x, Dims permutation);
  Value* broadcast(Value* x, const Dims& dims, Dims where);  // broadcast_in_dim
  Value* broadcast_scalar(Value* x, const Dims& dims) { return broadcast(x, dims, {}); }
  Value* slice(Value* x, Dims start, Dims limit, Dims stride = {});  // no strides: all 1
  Value* slice_dim(Value* x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  Value* reverse(Value* x, Dims dims);
  Value* concatenate(std::vector<Value*> parts, int64_t dim);
  Value* pad(Value* x, Value* value, Dims low, Dims high, Dims interior = {});
  Value* window(Value* x, Dims size, Dims stride, Dims dilation);

  // reduce with a body of one op (add, multiply, maximum, minimum, and, or, xor); `apart`: see
  // DimsAttrs.
  Value* reduce(Kind body, Value* x, Value* init, Dims dims, bool apart = false);

  // The body of a reduce, sort, scatter, ... applied element by element to whole arrays: every
  // scalar of the body becomes an array of shape `dims`. Values captured from outside are
  // broadcast. One result for each operand of the body's return.
  std::vector<Value*> apply(const Region& body, const std::vector<Value*>& args, const Dims& dims);

 private:
  Rewriter& rw_;
};

// Dims with one entry set.
Dims with_dim(Dims dims, int64_t dim, int64_t value);

}  // namespace tpu::compiler
