// concatenate along a last dimension with short rows, as jnp.stack(.., -1) makes it: a transfer of
// a few bytes takes as long as one of half a KiB, a transpose moves whole vectors.
//   before   y = concatenate(a, b) over dim 1 : f32[65536,2]
//   after    y = transpose(concatenate(reshape(a), reshape(b)) over dim 0 : f32[2,65536])
#include <algorithm>

#include "legalize/builder.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {

namespace {

constexpr int64_t kFewRows = 64;  // take no longer than a transpose
// A row of one operand takes as long as it takes to transpose so many elements.
constexpr int64_t kElementsPerRow = 8;

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

}  // namespace tpu::compiler::legalization
