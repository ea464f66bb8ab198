// Bodies on whole arrays, and the dispatch of ops that work on whole arrays.
#include "ir/lifted_body.hpp"

#include "ir/op_traits.hpp"

namespace tpu::compiler::eval {
namespace {

[[noreturn]] void refuse_in_body(const Op& op, const std::string& message) {
  throw Error(message, source_name(op.kind), op.loc);
}

}  // namespace

Ref share(Tensor t) { return std::make_shared<const Tensor>(std::move(t)); }

std::vector<Tensor> LiftedBody::run(const std::vector<const Tensor*>& args) {
  values_.clear();
  for (size_t i = 0; i < args.size(); ++i) {
    values_[body_.args[i].get()] = share({{args[i]->type.elem, dims_}, args[i]->data});
  }
  for (const auto& op : body_.ops) {
    std::vector<Ref> refs;
    Tensors in;
    for (const Value* v : op->operands) {
      refs.push_back(get(v));
      in.push_back(refs.back().get());
    }
    if (op->kind == Kind::kReturn) {
      std::vector<Tensor> out;
      for (const Tensor* t : in) {
        out.push_back(*t);
      }
      return out;
    }
    values_[op->result()] = share(evaluate(*op, in));
  }
  refuse_in_body(owner_, "the body does not end with a return");
}

Tensor LiftedBody::evaluate(const Op& op, const Tensors& in) const {
  if (op.kind == Kind::kConstant) {
    return splat(to_tensor(op.as<ConstantAttrs>().value));
  }
  if (op.kind == Kind::kReshape || op.kind == Kind::kBroadcastInDim) {
    return *in[0];  // scalar to scalar
  }
  if (!is_elementwise(op.kind)) {
    refuse_in_body(op, "the interpreter takes only elementwise ops in a reduction's body");
  }
  return elementwise(op, in, dims_);
}

Tensor LiftedBody::splat(const Tensor& scalar) const {
  return to_tensor({{scalar.type.elem, dims_},
                    true,
                    std::make_shared<const std::vector<std::byte>>(scalar.data)});
}

Ref LiftedBody::get(const Value* v) {
  const auto it = values_.find(v);
  if (it != values_.end()) {
    return it->second;
  }
  const auto outer = outer_.find(v);
  if (outer == outer_.end()) {
    refuse_in_body(owner_, "the body uses a value that is not known");
  }
  return values_[v] = share(splat(*outer->second));
}

bool has_whole_op(Kind kind) { return has_trait(kind, trait::kWholeArray); }

std::vector<Tensor> whole_op(const Op& op, const Tensors& in, const Env& env) {
  switch (op.kind) {
    case Kind::kReduceWindow:
      return reduce_window(op, in, env);
    case Kind::kSelectAndScatter:
      return {select_and_scatter(op, in, env)};
    case Kind::kSort:
      return sort(op, in, env);
    case Kind::kMap: {
      auto out = LiftedBody(op, *op.regions[0], op.type().count(), env).run(in);
      out[0].type = op.type();
      return out;
    }
    case Kind::kBatchNormTraining:
    case Kind::kBatchNormInference:
    case Kind::kBatchNormGrad:
      return batch_norm(op, in);
    default:
      fail_unknown_kind(op, "the interpreter of whole arrays");
  }
}

}  // namespace tpu::compiler::eval
