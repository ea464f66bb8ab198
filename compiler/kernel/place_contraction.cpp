// Contractions: which views in front of and behind a dot_general its kernel takes over.
#include "kernel/place_contraction.hpp"

#include <algorithm>

#include "kernel/contraction.hpp"

namespace tpu::compiler {

namespace {

// Transposes and reshapes behind a dot, each the only reader of the one before: the dot writes
// the last of them directly.
void fold_views(const Op& op, Fusion& fusion, const Value*& out, OutPieces& pieces) {
  bool moved = false;
  const Op* next = fusion.only_reader(op.result());
  for (; next != nullptr && (next->kind == Kind::kTranspose || next->kind == Kind::kReshape);
       next = fusion.only_reader(next->result())) {
    moved = moved || next->kind == Kind::kTranspose;
    const Value* v = next->result();
    const auto a = fusion.view(v);
    const OutPieces found =
        a ? pieces_of(op.type().dims, v->type.dims, a->view.stride) : OutPieces{};
    if (found.empty() && op.type().rank() > 0) {
      return;
    }
    if (moved) {
      out = v;
      pieces = found;
    }
  }
}

// The right side in the order batch, contraction, columns, in a buffer of its own.
ContractionSide arranged_columns(const Op& op, Fusion& fusion) {
  Value* v = op.operands[1];
  const auto& a = op.as<DotAttrs>();
  const Dims free = free_dims(v->type.rank(), a.rhs_batch, a.rhs_contract);
  Dims order = a.rhs_batch;
  order.insert(order.end(), a.rhs_contract.begin(), a.rhs_contract.end());
  order.insert(order.end(), free.begin(), free.end());
  const Value* copy = fusion.transposed(v, order, op.loc);
  ContractionSide side{copy, 0, Dims(order.size())};
  const Dims pitch = row_major_strides(copy->type.dims);
  for (size_t d = 0; d < order.size(); ++d) {
    side.strides[static_cast<size_t>(order[d])] = pitch[d];
  }
  return side;
}

// Loops of the contraction over buffers. Weights that run neither along their columns nor along
// the contraction are copied first; rows of any order can be brought in.
Contraction contraction(const Op& op, const OutPieces& out, Fusion& fusion) {
  std::array<ContractionSide, 2> side;
  for (size_t i = 0; i < 2; ++i) {
    const NestAccess a = fusion.strided(op.operands[i]);
    side[i] = {a.value, a.view.offset, a.view.stride};
  }
  Contraction c = make_contraction(op, side, out);
  if (!weights_can_load(c) && !weights_can_load(swapped(c))) {
    side[1] = arranged_columns(op, fusion);
    c = make_contraction(op, side, out);
  }
  return c;
}

}  // namespace

void place_contraction(const Op& op, Fusion& fusion) {
  for (const Value* v : op.operands) {
    if (v->type.elem != Elem::kF32 && v->type.elem != Elem::kBf16) {
      unsupported(op, "dot_general takes f32 and bf16 operands only; convert " +
                          std::string(elem_name(v->type.elem)) + " first");
    }
    fusion.materialise(v);
  }
  const auto& a = op.as<DotAttrs>();
  if (a.lhs_precision != Precision::kDefault || a.rhs_precision != Precision::kDefault) {
    unsupported(op, "precision high and highest are not supported; use the default precision");
  }
  Kernel k(KernelClass::kContract);
  k.ops = {&op};
  k.out = op.result();
  OutPieces out = pieces_of(op.type().dims, op.type().dims, row_major_strides(op.type().dims));
  fold_views(op, fusion, k.out, out);
  k.as<ContractPart>().dot = contraction(op, out, fusion);
  k.reads = {k.contract().dot.lhs, k.contract().dot.rhs};
  k.writes = {k.out};
  fusion.add(std::move(k));
}

}  // namespace tpu::compiler
