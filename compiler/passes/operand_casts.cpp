// Pass `operand_casts`: see operand_casts.hpp.
#include "passes/operand_casts.hpp"

#include "passes/dce.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

// The argument that the value is a cast of, or null.
Value* cast_argument(const Value* v) {
  const Op* cast = v->def;
  const bool narrows = cast != nullptr && cast->kind == Kind::kConvert &&
                       v->type.elem == Elem::kBf16 && cast->operand_type(0).elem == Elem::kF32;
  return narrows && cast->operands[0]->def == nullptr ? cast->operands[0] : nullptr;
}

}  // namespace

size_t read_arguments_uncast(Module& module) {
  size_t changed = 0;
  Rewriter().run(module.main->body, [&](Op& op, Rewriter&) {
    if (op.kind == Kind::kDotGeneral) {
      for (Value*& operand : op.operands) {
        if (Value* argument = cast_argument(operand)) {
          operand = argument;
          ++changed;
        }
      }
    }
    return std::vector<Value*>{};
  });
  remove_dead_ops(module);
  return changed;
}

}  // namespace tpu::compiler
