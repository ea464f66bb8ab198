// Operands of contractions: see contraction_parts.hpp.
#include "legalize/contraction_parts.hpp"

#include <algorithm>

namespace tpu::compiler::legalization {
namespace {

constexpr size_t kHi = 0, kMid = 1, kLo = 2;
using Product = std::array<size_t, 2>;

// Parts of x, largest first; `count` 1 .. 3.
std::vector<Value*> parts_of(Builder& b, Value* x, size_t count) {
  if (x->type.elem == Elem::kBf16) {
    return {x};
  }
  std::vector<Value*> parts;
  Value* rest = x;
  for (size_t i = 0; i < count; ++i) {
    Value* part = b.convert(rest, Elem::kBf16);
    parts.push_back(part);
    if (i + 1 < count) {
      Value* wide = b.convert(part, Elem::kF32);
      Value *none = b.zeros_like(rest), *left = b.sub(rest, wide);
      rest = b.select(b.unary(Kind::kIsFinite, wide), left, none);
    }
  }
  return parts;
}

Value* stack(Builder& b, const std::vector<Value*>& parts, const std::vector<Product>& products,
             size_t side) {
  std::vector<Value*> list;
  for (const Product& p : products) {
    Value* v = parts[p[side]];
    Dims dims = v->type.dims;
    dims.insert(dims.begin(), 1);
    list.push_back(b.reshape(v, dims));
  }
  return b.concatenate(list, 0);
}

}  // namespace

Precision joint_precision(Precision lhs, Precision rhs) { return std::max(lhs, rhs); }

std::array<Value*, 2> stack_parts(Builder& b, Value* lhs, Value* rhs, Precision precision) {
  const bool highest = precision == Precision::kHighest;
  std::vector<Product> order;
  if (highest) {
    order = {{kMid, kMid}, {kHi, kLo}, {kLo, kHi}, {kHi, kMid}, {kMid, kHi}, {kHi, kHi}};
  } else {
    order = {{kMid, kHi}, {kHi, kMid}, {kHi, kHi}};
  }
  const size_t count = highest ? 3 : 2;
  const std::vector<Value*> left = parts_of(b, lhs, count), right = parts_of(b, rhs, count);
  std::erase_if(order,
                [&](const Product& p) { return p[0] >= left.size() || p[1] >= right.size(); });
  return {stack(b, left, order, 0), stack(b, right, order, 1)};
}

std::array<Value*, 2> contraction_operands(Builder& b, Value* lhs, Value* rhs, Elem result) {
  const auto is_f = [](const Value* v) { return is_float(v->type.elem); };
  // On the vector unit in the result's type: integers wrap there.
  if (!is_float(result) || result == Elem::kF64) {
    return {b.convert(lhs, result), b.convert(rhs, result)};
  }
  return {is_f(lhs) ? lhs : b.convert(lhs, Elem::kF32),
          is_f(rhs) ? rhs : b.convert(rhs, Elem::kF32)};
}

}  // namespace tpu::compiler::legalization
