// dot_general in forms that the matrix unit does not take: precision high and highest (parts in
// bf16 along one more contracting dimension), integers (multiply and reduce on the vector unit);
// and products of f32 with a vector, where a style wants them there.
#include <algorithm>
#include <array>

#include "legalize/contraction_parts.hpp"
#include "legalize/legalize.hpp"

namespace tpu::compiler::legalization {
namespace {

Dims shifted(Dims dims, int64_t by) {
  for (int64_t& d : dims) {
    d += by;
  }
  return dims;
}

Value* by_parts(const Op& op, Builder& b, Rewriter& rw, Precision precision) {
  DotAttrs a = op.as<DotAttrs>();
  const auto parts = stack_parts(b, op.operands[0], op.operands[1], precision);
  for (Dims* dims : {&a.lhs_batch, &a.rhs_batch, &a.lhs_contract, &a.rhs_contract}) {
    *dims = shifted(*dims, 1);
  }
  a.lhs_contract.insert(a.lhs_contract.begin(), 0);
  a.rhs_contract.insert(a.rhs_contract.begin(), 0);
  a.lhs_precision = a.rhs_precision = Precision::kDefault;
  return rw.make(Kind::kDotGeneral, {parts[0], parts[1]}, op.type(), a);
}

// [K, batch, free] of one side.
Value* flatten(Builder& b, Value* v, const Dims& batch, const Dims& contract, Dims& free_sizes) {
  Dims perm = contract;
  perm.insert(perm.end(), batch.begin(), batch.end());
  for (int64_t d = 0; d < v->type.rank(); ++d) {
    if (std::find(perm.begin(), perm.end(), d) == perm.end()) {
      free_sizes.push_back(v->type.dims[static_cast<size_t>(d)]);
    }
  }
  for (int64_t d = 0; d < v->type.rank(); ++d) {
    if (std::find(perm.begin(), perm.end(), d) == perm.end()) {
      perm.push_back(d);
    }
  }
  v = b.transpose(v, perm);
  Dims flat = {1, 1, 1};
  for (size_t i = 0; i < v->type.dims.size(); ++i) {
    const size_t to = i < contract.size() ? 0 : i < contract.size() + batch.size() ? 1 : 2;
    flat[to] *= v->type.dims[i];
  }
  return b.reshape(v, flat);
}

Value* on_vectors(const Op& op, Builder& b) {
  const auto& a = op.as<DotAttrs>();
  // Narrow integers in 32 bits: the low bits of sums and products are the same.
  const Elem result = op.type().elem;
  const Elem wide = result == Elem::kF64      ? result
                    : is_float(result)        ? Elem::kF32
                    : elem_bytes(result) >= 4 ? result
                    : is_signed(result)       ? Elem::kI32
                                              : Elem::kU32;
  const std::array<Value*, 2> in = {b.convert(op.operands[0], wide),
                                    b.convert(op.operands[1], wide)};
  Dims m, n;
  Value* x = flatten(b, in[0], a.lhs_batch, a.lhs_contract, m);
  Value* y = flatten(b, in[1], a.rhs_batch, a.rhs_contract, n);
  const Dims box = {x->type.dims[0], x->type.dims[1], x->type.dims[2], y->type.dims[2]};
  Value *right = b.broadcast(y, box, {0, 1, 3}), *left = b.broadcast(x, box, {0, 1, 2});
  Value* product = b.mul(left, right);
  Value* sum = b.reduce(Kind::kAdd, product, b.splat_int({wide, {}}, 0), {0});
  return b.reshape(b.convert(sum, result), op.type().dims);
}

// True if the operand has one element outside of batch and contracting dimensions.
bool is_vector(const Type& type, const Dims& batch, const Dims& contract) {
  int64_t free = type.count();
  for (const Dims* dims : {&batch, &contract}) {
    for (const int64_t d : *dims) {
      free /= std::max<int64_t>(type.dims[static_cast<size_t>(d)], 1);
    }
  }
  return free == 1;
}

}  // namespace

std::vector<Value*> vector_product(Op& op, Rewriter& rw) {
  if (op.kind != Kind::kDotGeneral || !is_float(op.type().elem)) {
    return {};
  }
  const auto& a = op.as<DotAttrs>();
  const Type &lhs = op.operand_type(0), &rhs = op.operand_type(1);
  const bool rounds = lhs.elem != Elem::kBf16 || rhs.elem != Elem::kBf16;  // on the matrix unit
  const bool vector =
      is_vector(lhs, a.lhs_batch, a.lhs_contract) || is_vector(rhs, a.rhs_batch, a.rhs_contract);
  if (!rounds || !vector) {
    return {};
  }
  Builder b(rw);
  return {on_vectors(op, b)};
}

std::vector<Value*> dot_general(Op& op, Rewriter& rw) {
  Builder b(rw);
  const auto& a = op.as<DotAttrs>();
  const Elem result = op.type().elem;
  if (op.type().count() == 0) {
    return {b.splat_int(op.type(), 0)};
  }
  if (!is_float(result) || result == Elem::kF64) {
    return {on_vectors(op, b)};
  }
  const auto in = contraction_operands(b, op.operands[0], op.operands[1], result);
  if (in[0] != op.operands[0] || in[1] != op.operands[1]) {
    return {rw.make(Kind::kDotGeneral, {in[0], in[1]}, op.type(), a)};
  }
  const Precision precision = joint_precision(a.lhs_precision, a.rhs_precision);
  if (precision == Precision::kDefault) {
    return {};
  }
  if (in[0]->type.elem == Elem::kBf16 && in[1]->type.elem == Elem::kBf16) {  // exact as they are
    DotAttrs plain = a;
    plain.lhs_precision = plain.rhs_precision = Precision::kDefault;
    return {rw.make(Kind::kDotGeneral, {in[0], in[1]}, op.type(), plain)};
  }
  return {by_parts(op, b, rw, precision)};
}

}  // namespace tpu::compiler::legalization
