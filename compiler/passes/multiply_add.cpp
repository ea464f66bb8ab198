// Pass `multiply_add`: see multiply_add.hpp.
#include "passes/multiply_add.hpp"

#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

// True if all elements are one number by the form of the program.
bool is_one_number(const Value* v) {
  if (v->type.count() == 1) {
    return true;
  }
  return splat_of(v) != nullptr || (v->def != nullptr && v->def->kind == Kind::kBroadcastInDim &&
                                    is_one_number(v->def->operands[0]));
}

std::vector<Value*> fuse(const Op& sum, const Uses& uses, Rewriter& rw) {
  if (sum.kind != Kind::kAdd || sum.type().elem != Elem::kF32) {
    return {};
  }
  for (const size_t i : {0u, 1u}) {
    const Op* product = sum.operands[i]->def;
    Value* offset = sum.operands[1 - i];
    if (product == nullptr || product->kind != Kind::kMultiply || product->parent != sum.parent ||
        uses.at(product->result()).size() != 1 || !is_one_number(offset)) {
      continue;
    }
    for (const size_t j : {1u, 0u}) {
      Value* scale = product->operands[j];
      if (is_one_number(scale)) {
        return {rw.make(Kind::kMultiplyAdd, {product->operands[1 - j], scale, offset}, sum.type())};
      }
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
