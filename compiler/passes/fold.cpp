// Pass `fold`: see fold.hpp. The arithmetic is that of the interpreter, hence of spec/arith.
#include "passes/fold.hpp"

#include <algorithm>

#include "arith/flush_mode.hpp"
#include "ir/eval.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

bool is_foldable(const Op& op) {
  if (op.kind == Kind::kConstant || op.kind == Kind::kDotGeneral ||
      op.kind == Kind::kIota) {  // an iota is cheaper to make than to load
    return false;
  }
  return can_eval(op.kind) && (op.kind != Kind::kBitcastConvert ||
                               elem_bytes(op.operand_type(0).elem) == elem_bytes(op.type().elem));
}

// One repeated element in, one repeated element out: evaluated once.
std::vector<Value*> fold_splat(const Op& op, const std::vector<const Dense*>& in, Rewriter& rw) {
  std::vector<Tensor> ones;
  Tensors refs;
  for (const Dense* d : in) {
    Dense one = *d;
    one.type.dims = {};
    one.splat = false;
    one.data = std::make_shared<const std::vector<std::byte>>(
        d->data->begin(), d->data->begin() + static_cast<std::ptrdiff_t>(elem_bytes(d->type.elem)));
    ones.push_back(to_tensor(one));
  }
  for (const Tensor& t : ones) {
    refs.push_back(&t);
  }
  Tensor value = eval::elementwise(op, refs, {});
  const Type type{value.type.elem, op.type().dims};
  return {rw.constant({type, type.count() != 1,
                       std::make_shared<const std::vector<std::byte>>(std::move(value.data))})};
}

// Results of equal elements become a repeated element.
Dense shortened(Tensor t) {
  const auto size = static_cast<size_t>(elem_bytes(t.type.elem));
  const bool uniform =
      t.type.count() > 1 &&
      std::equal(t.data.begin() + static_cast<std::ptrdiff_t>(size), t.data.end(), t.data.begin());
  if (!uniform) {
    return to_dense(std::move(t));
  }
  t.data.resize(size);
  return {t.type, true, std::make_shared<const std::vector<std::byte>>(std::move(t.data))};
}

std::vector<Value*> fold(Op& op, Rewriter& rw, PassLog* log) {
  if (!is_foldable(op) || op.operands.empty()) {
    return {};
  }
  std::vector<const Dense*> in;
  for (const Value* v : op.operands) {
    in.push_back(constant_of(v));
    if (in.back() == nullptr) {
      return {};
    }
  }
  const bool uniform = std::all_of(op.operands.begin(), op.operands.end(),
                                   [](const Value* v) { return splat_of(v) != nullptr; });
  if (uniform && is_elementwise(op.kind) && op.type().count() > 0) {
    return fold_splat(op, in, rw);
  }
  if (op.type().count() > kMaxFoldedElements) {
    if (log != nullptr) {
      log->gave_up("the constant result would be too large");
    }
    return {};
  }
  std::vector<Tensor> tensors;
  Tensors refs;
  for (const Dense* d : in) {
    if (d->type.count() > kMaxFoldedElements && d->splat) {
      return {};  // not worth expanding
    }
    tensors.push_back(to_tensor(*d));
  }
  for (const Tensor& t : tensors) {
    refs.push_back(&t);
  }
  return {rw.constant(shortened(eval_op(op, refs, {})))};
}

}  // namespace

bool fold_constants(Module& module, PassLog* log) {
  const spec::ScopedFlushMode flush;
  const auto one = [log](Op& op, Rewriter& rw) { return fold(op, rw, log); };
  bool any = Rewriter().run(module.main->body, one);
  for (const auto& f : module.functions) {
    any = Rewriter().run(f->body, one) || any;
  }
  return any;
}

}  // namespace tpu::compiler
