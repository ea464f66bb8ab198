// Rules of `canonicalise` on ops that only move data.
#include <algorithm>

#include "passes/canonicalise_rules.hpp"

namespace tpu::compiler::rules {
namespace {

Value* reshaped(Value* v, const Type& type, Rewriter& rw) {
  return v->type == type ? v : rw.make(Kind::kReshape, {v}, type);
}

// Sizes without ones, and for each dimension of `dims` its number among those (-1 for a one).
Dims without_ones(const Dims& dims) {
  Dims out;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(out), [](int64_t d) { return d != 1; });
  return out;
}

// The constant with another shape; the bytes are shared.
Value* reshaped_constant(const Dense& d, const Type& type, Rewriter& rw) {
  return rw.constant({type, d.splat, d.data});
}

std::vector<Value*> reshape(Op& op, Rewriter& rw) {
  Value* in = op.operands[0];
  if (in->type == op.type()) {
    return {in};
  }
  if (in->def != nullptr && in->def->kind == Kind::kReshape) {
    return {reshaped(in->def->operands[0], op.type(), rw)};
  }
  if (const Dense* d = constant_of(in)) {
    return {reshaped_constant(*d, op.type(), rw)};
  }
  return {};
}

// A reshape that only adds or drops ones, seen as dimension numbers: result dim of each operand dim
// that is not one. Nothing if the reshape does more.
bool only_ones_change(const Dims& from, const Dims& to) {
  return without_ones(from) == without_ones(to);
}

std::vector<Value*> broadcast(Op& op, Rewriter& rw) {
  Value* in = op.operands[0];
  const Type& t = op.type();
  const Dims& dims = op.as<DimsAttrs>().dims;
  if (const Dense* d = splat_of(in)) {
    return {rw.constant({t, t.count() != 1, d->data})};
  }
  const bool ascending = std::is_sorted(dims.begin(), dims.end());
  if (ascending && only_ones_change(in->type.dims, t.dims)) {
    return {reshaped(in, t, rw)};
  }
  if (in->def == nullptr) {
    return {};
  }
  if (in->def->kind == Kind::kBroadcastInDim) {
    Dims composed;
    for (const int64_t d : in->def->as<DimsAttrs>().dims) {
      composed.push_back(dims[static_cast<size_t>(d)]);
    }
    return {rw.make(Kind::kBroadcastInDim, {in->def->operands[0]}, t, DimsAttrs{composed})};
  }
  if (in->def->kind == Kind::kReshape &&
      only_ones_change(in->def->operand_type(0).dims, in->type.dims)) {
    // Drop the ones: what is left of the inner operand goes where the outer dimensions go.
    Value* source = in->def->operands[0];
    const Type bare{source->type.elem, without_ones(source->type.dims)};
    if (bare.dims.size() == source->type.dims.size() || bare.dims.size() < in->type.dims.size()) {
      Dims composed;
      for (size_t i = 0; i < dims.size(); ++i) {
        if (in->type.dims[i] != 1) {
          composed.push_back(dims[i]);
        }
      }
      return {rw.make(Kind::kBroadcastInDim, {reshaped(source, bare, rw)}, t, DimsAttrs{composed})};
    }
  }
  return {};
}

std::vector<Value*> slice(Op& op) {
  return op.operand_type(0) == op.type() ? op.operands : std::vector<Value*>{};
}

std::vector<Value*> pad(Op& op) {
  const auto& a = op.as<PadAttrs>();
  const auto zero = [](const Dims& d) {
    return std::all_of(d.begin(), d.end(), [](int64_t x) { return x == 0; });
  };
  if (zero(a.low) && zero(a.high) && op.operand_type(0) == op.type()) {
    return {op.operands[0]};
  }
  return {};
}

std::vector<Value*> reverse(Op& op, Rewriter& rw) {
  Dims real;
  for (const int64_t d : op.as<DimsAttrs>().dims) {
    if (op.type().dims[static_cast<size_t>(d)] > 1) {
      real.push_back(d);
    }
  }
  if (real.empty()) {
    return {op.operands[0]};
  }
  if (real.size() != op.as<DimsAttrs>().dims.size()) {
    return {rw.make(Kind::kReverse, {op.operands[0]}, op.type(), DimsAttrs{real})};
  }
  return {};
}

// Empty operands add nothing.
std::vector<Value*> concatenate(Op& op, Rewriter& rw) {
  std::vector<Value*> full;
  for (Value* v : op.operands) {
    if (v->type.count() != 0) {
      full.push_back(v);
    }
  }
  if (op.operands.size() == 1) {
    return op.operands;
  }
  if (full.size() == 1 && full[0]->type == op.type()) {
    return full;
  }
  if (!full.empty() && full.size() != op.operands.size()) {
    return {rw.make(Kind::kConcatenate, full, op.type(), op.attrs)};
  }
  return {};
}

}  // namespace

std::vector<Value*> transpose(Op& op, Rewriter& rw) {
  Value* in = op.operands[0];
  const Dims& p = op.as<DimsAttrs>().dims;
  if (const Dense* d = constant_of(in); d != nullptr && d->splat) {
    return {reshaped_constant(*d, op.type(), rw)};
  }
  // The dimensions that are not one keep their order: no data moves.
  Dims moving;
  for (const int64_t d : p) {
    if (in->type.dims[static_cast<size_t>(d)] != 1) {
      moving.push_back(d);
    }
  }
  if (std::is_sorted(moving.begin(), moving.end()) || in->type.count() == 0) {
    return {reshaped(in, op.type(), rw)};
  }
  if (in->def != nullptr && in->def->kind == Kind::kTranspose) {
    Dims composed;
    for (const int64_t d : p) {
      composed.push_back(in->def->as<DimsAttrs>().dims[static_cast<size_t>(d)]);
    }
    return {rw.make(Kind::kTranspose, {in->def->operands[0]}, op.type(), DimsAttrs{composed})};
  }
  // transpose(broadcast(x)) = broadcast(x) to other dimensions.
  if (in->def != nullptr && in->def->kind == Kind::kBroadcastInDim) {
    Dims composed;
    for (const int64_t d : in->def->as<DimsAttrs>().dims) {
      composed.push_back(std::find(p.begin(), p.end(), d) - p.begin());
    }
    return {rw.make(Kind::kBroadcastInDim, {in->def->operands[0]}, op.type(), DimsAttrs{composed})};
  }
  return {};
}

std::vector<Value*> shape(Op& op, Rewriter& rw) {
  switch (op.kind) {
    case Kind::kReshape:
      return reshape(op, rw);
    case Kind::kBroadcastInDim:
      return broadcast(op, rw);
    case Kind::kSlice:
      return slice(op);
    case Kind::kPad:
      return pad(op);
    case Kind::kReverse:
      return reverse(op, rw);
    case Kind::kConcatenate:
      return concatenate(op, rw);
    default:  // has no rule
      return {};
  }
}

}  // namespace tpu::compiler::rules
