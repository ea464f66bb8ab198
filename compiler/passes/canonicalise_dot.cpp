// Rules of `canonicalise` on transposes around dot_general. Both keep the order in which products
// are summed and every product's two factors, so the bits stay.
#include <algorithm>

#include "passes/canonicalise_rules.hpp"

namespace tpu::compiler::rules {
namespace {

bool contains(const Dims& dims, int64_t d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

// The dimensions that are neither batch nor contracted, ascending.
Dims free_dims(const Type& t, const Dims& batch, const Dims& contract) {
  Dims out;
  for (int64_t d = 0; d < t.rank(); ++d) {
    if (!contains(batch, d) && !contains(contract, d)) {
      out.push_back(d);
    }
  }
  return out;
}

// Dimension numbers on the operand of a transpose instead of its result. False if the free
// dimensions would come in another order.
bool through(const Op& transpose, const Type& type, Dims& batch, Dims& contract) {
  const Dims& p = transpose.as<DimsAttrs>().dims;
  const auto map = [&p](const Dims& dims) {
    Dims out;
    for (const int64_t d : dims) {
      out.push_back(p[static_cast<size_t>(d)]);
    }
    return out;
  };
  const Dims free = map(free_dims(type, batch, contract));
  if (!std::is_sorted(free.begin(), free.end())) {
    return false;
  }
  batch = map(batch);
  contract = map(contract);
  return true;
}

}  // namespace

std::vector<Value*> dot_general(Op& op, Rewriter& rw) {
  DotAttrs a = op.as<DotAttrs>();
  std::vector<Value*> operands = op.operands;
  bool changed = false;
  for (size_t side = 0; side < 2; ++side) {
    const Op* def = operands[side]->def;
    if (def == nullptr || def->kind != Kind::kTranspose) {
      continue;
    }
    Dims& batch = side == 0 ? a.lhs_batch : a.rhs_batch;
    Dims& contract = side == 0 ? a.lhs_contract : a.rhs_contract;
    if (through(*def, operands[side]->type, batch, contract)) {
      operands[side] = def->operands[0];
      changed = true;
    }
  }
  if (!changed) {
    return {};
  }
  return {rw.make(Kind::kDotGeneral, operands, op.type(), a)};
}

// transpose(dot(l, r)) = dot(r, l) if the transpose swaps the free dimensions of both sides as
// blocks.
std::vector<Value*> transpose_of_dot(Op& op, Rewriter& rw, const Uses& uses) {
  Op* dot = op.operands[0]->def;
  if (dot == nullptr || dot->kind != Kind::kDotGeneral) {
    return {};
  }
  const auto users = uses.find(op.operands[0]);
  if (users == uses.end() || users->second.size() != 1) {
    return {};
  }
  const auto& a = dot->as<DotAttrs>();
  const auto num_batch = static_cast<int64_t>(a.lhs_batch.size());
  const auto m =
      static_cast<int64_t>(free_dims(dot->operand_type(0), a.lhs_batch, a.lhs_contract).size());
  Dims swapped;
  for (int64_t d = 0; d < num_batch; ++d) {
    swapped.push_back(d);
  }
  for (int64_t d = num_batch + m; d < op.type().rank(); ++d) {
    swapped.push_back(d);
  }
  for (int64_t d = num_batch; d < num_batch + m; ++d) {
    swapped.push_back(d);
  }
  if (op.as<DimsAttrs>().dims != swapped) {
    return {};
  }
  const DotAttrs b{a.rhs_batch,    a.lhs_batch,     a.rhs_contract,
                   a.lhs_contract, a.rhs_precision, a.lhs_precision};
  return {rw.make(Kind::kDotGeneral, {dot->operands[1], dot->operands[0]}, op.type(), b)};
}

}  // namespace tpu::compiler::rules
