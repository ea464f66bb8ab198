// Pass `multiply_add`: see multiply_add.hpp.
#include "passes/multiply_add.hpp"

#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

bool is_constraint(const Value* v) {
  return v->def != nullptr && v->def->kind == Kind::kShardingConstraint;
}

// True if all elements are one number by the form of the program. Where they lie does not matter.
bool is_one_number(const Value* v) {
  while (is_constraint(v)) {
    v = v->def->operands[0];
  }
  if (v->type.count() == 1) {
    return true;
  }
  return splat_of(v) != nullptr || (v->def != nullptr && v->def->kind == Kind::kBroadcastInDim &&
                                    is_one_number(v->def->operands[0]));
}

// The product that nobody but `sum` uses, directly or behind sharding constraints, which are kept.
const Op* product_of(const Op& sum, const Value* term, const Uses& uses,
                     std::vector<const Op*>& constraints) {
  for (; is_constraint(term); term = term->def->operands[0]) {
    if (uses.at(term).size() != 1) {
      return nullptr;
    }
    constraints.push_back(term->def);
  }
  const Op* product = term->def;
  const bool fits = product != nullptr && product->kind == Kind::kMultiply &&
                    product->parent == sum.parent && uses.at(term).size() == 1;
  return fits ? product : nullptr;
}

std::vector<Value*> fuse(const Op& sum, const Uses& uses, Rewriter& rw) {
  if (sum.kind != Kind::kAdd || sum.type().elem != Elem::kF32) {
    return {};
  }
  for (const size_t i : {0u, 1u}) {
    std::vector<const Op*> constraints;
    const Op* product = product_of(sum, sum.operands[i], uses, constraints);
    Value* offset = sum.operands[1 - i];
    if (product == nullptr || !is_one_number(offset)) {
      continue;
    }
    for (const size_t j : {1u, 0u}) {
      Value* scale = product->operands[j];
      if (!is_one_number(scale)) {
        continue;
      }
      Value* x = product->operands[1 - j];
      for (const Op* constraint : constraints) {
        x = rw.make(Kind::kShardingConstraint, {x}, x->type, constraint->as<ShardingAttrs>());
      }
      return {rw.make(Kind::kMultiplyAdd, {x, scale, offset}, sum.type())};
    }
  }
  return {};
}

}  // namespace

bool fuse_multiply_add(Module& module) {
  Region& body = module.main->body;
  const Uses uses = compute_uses(body);
  return Rewriter().run(body, [&](Op& op, Rewriter& rw) { return fuse(op, uses, rw); });
}

}  // namespace tpu::compiler
