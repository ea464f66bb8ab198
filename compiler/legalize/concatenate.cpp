// concatenate along a last dimension with short rows, as jnp.stack(.., -1) makes it: a transfer of
// a few bytes takes as long as one of half a KiB, a transpose moves whole vectors.
//   before   y = concatenate(a, b) over dim 1 : f32[65536,2]
//   after    y = transpose(concatenate(reshape(a), reshape(b)) over dim 0 : f32[2,65536])
//
// pad between the elements of a last dimension, as the gradient of x[..., ::2] makes it: the same
//   before   y = pad(x f32[512,32], value) {low 0, high 1, interior 1 in dim 1}
//   after    y = reshape(concatenate(x, values) over dim 2 : f32[512,32,2])
#include <algorithm>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

constexpr int64_t kFewRows = 64;  // take no longer than a transpose
// A row of one operand takes as long as it takes to transpose so many elements.
constexpr int64_t kElementsPerRow = 8;
constexpr int64_t kMostInterior = 7, kMostInner = kElementsPerRow / 2, kFewPadded = 1024;

int64_t product(Dims::const_iterator begin, Dims::const_iterator end) {
  int64_t n = 1;
  for (; begin != end; ++begin) {
    n *= *begin;
  }
  return n;
}

}  // namespace

std::vector<Value*> concatenate(Op& op, Rewriter& rw) {
  const Dims& dims = op.type().dims;
  const int64_t dim = op.as<DimAttrs>().dim;
  const int64_t rows = product(dims.begin(), dims.begin() + dim);
  const int64_t row = product(dims.begin() + dim, dims.end());
  const auto width = [&](const Value* v) { return v->type.count() / std::max<int64_t>(rows, 1); };
  // Operands of one element a row are rows of the result as they are.
  const bool thin = std::all_of(op.operands.begin(), op.operands.end(),
                                [&](const Value* v) { return width(v) <= 1; });
  const auto operands = static_cast<int64_t>(op.operands.size());
  if (operands < 2 || rows < kFewRows || (thin ? 1 : 2) * row > kElementsPerRow * operands) {
    return {};
  }
  Builder b(rw);
  std::vector<Value*> columns;
  for (Value* v : op.operands) {
    Value* x = b.reshape(v, {rows, width(v)});
    columns.push_back(width(v) == 1 ? b.reshape(x, {1, rows}) : b.transpose(x, {1, 0}));
  }
  return {b.reshape(b.transpose(b.concatenate(std::move(columns), 0), {1, 0}), dims)};
}

std::vector<Value*> pad(Op& op, Rewriter& rw) {
  const auto& a = op.as<PadAttrs>();
  Value* x = op.operands[0];
  const Dims& dims = x->type.dims;
  size_t d = dims.size();
  int64_t inner = 1;
  while (d > 0 && a.interior[d - 1] == 0) {
    inner *= dims[--d];
  }
  if (d == 0 || dims[d - 1] < 2 || inner > kMostInner || x->type.count() < kFewPadded ||
      a.interior[d - 1] > kMostInterior) {
    return {};
  }
  // Each element becomes 1 + n of them, with itself at place `at`. What is too much is cropped.
  --d;
  const int64_t n = a.interior[d], at = std::clamp<int64_t>(a.low[d], 0, n);
  Builder b(rw);
  Dims column(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(d) + 1);
  column.push_back(1);
  column.insert(column.end(), dims.begin() + static_cast<ptrdiff_t>(d) + 1, dims.end());
  std::vector<Value*> columns(static_cast<size_t>(n) + 1,
                              b.broadcast_scalar(op.operands[1], column));
  columns[static_cast<size_t>(at)] = b.reshape(x, column);
  Value* apart = b.concatenate(std::move(columns), static_cast<int64_t>(d) + 1);
  apart = b.reshape(apart, with_dim(dims, static_cast<int64_t>(d), dims[d] * (n + 1)));
  Dims low = a.low, high = a.high, interior = a.interior;
  low[d] -= at;
  high[d] -= n - at;
  interior[d] = 0;
  return {b.pad(apart, op.operands[1], std::move(low), std::move(high), std::move(interior))};
}

}  // namespace tpu::compiler::legalization
