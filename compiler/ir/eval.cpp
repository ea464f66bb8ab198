// Dispatch of single ops to their evaluation, and conversions between constants and arrays.
#include "ir/eval.hpp"

#include "ir/op_traits.hpp"

namespace tpu::compiler {

Tensor make_tensor(const Type& type) {
  return {type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
}

Tensor to_tensor(const Dense& dense) { return {dense.type, dense.expanded()}; }

Dense to_dense(Tensor tensor) { return make_dense(tensor.type, std::move(tensor.data)); }

bool can_eval(Kind kind) { return has_trait(kind, trait::kFolds) || is_elementwise(kind); }

Tensor eval_op(const Op& op, const Tensors& operands, const EvalOptions& options) {
  if (op.kind == Kind::kDotGeneral) {
    return eval::dot(op, operands, options);
  }
  if (op.kind == Kind::kConvolution) {
    return eval::convolution(op, operands, options);
  }
  if (op.kind == Kind::kGather) {
    return eval::gather(op, operands);
  }
  if (op.kind == Kind::kIndexedRead || op.kind == Kind::kIndexedWrite) {
    return eval::indexed_move(op, operands);
  }
  if (is_elementwise(op.kind)) {
    return eval::elementwise(op, operands, op.type().dims);
  }
  return eval::shape(op, operands);
}

}  // namespace tpu::compiler
