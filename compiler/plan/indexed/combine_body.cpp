#include "plan/indexed/combine_body.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

// The ops of a scatter's body on vectors of one window.
class Vectorised {
 public:
  Vectorised(const Op& op, CombineBody& body)
      : op_(op), body_(body), dims_{op.as<IndexedAttrs>().window[0]} {}

  // Returns the ops that compute something.
  std::vector<const Op*> run() {
    for (const auto& arg : op_.regions[0]->args) {
      if (elem_bytes(arg->type.elem) == 8) {
        throw Error(
            "64-bit updates of windows that can overlap are not supported; use 32-bit values or "
            "unique indices",
            "stablehlo.scatter", op_.loc);
      }
      map_[arg.get()] = body_.region.add_arg({arg->type.elem, dims_});
    }
    for (const auto& inner : op_.regions[0]->ops) {
      if (inner->kind == Kind::kReturn) {
        give_back(operands_of(*inner));
        break;
      }
      add(*inner);
    }
    return std::move(ops_);
  }

 private:
  std::vector<Value*> operands_of(const Op& inner) const {
    std::vector<Value*> operands;
    for (Value* v : inner.operands) {
      const auto it = map_.find(v);
      if (it == map_.end()) {
        throw Error(
            "the update computation of a scatter uses a value that is defined outside of it",
            "stablehlo.scatter", op_.loc);
      }
      operands.push_back(it->second);
    }
    return operands;
  }

  void add(const Op& inner) {
    const std::vector<Value*> operands = operands_of(inner);
    const bool view = inner.kind == Kind::kReshape || inner.kind == Kind::kBroadcastInDim;
    Attrs attrs = inner.attrs;
    if (inner.kind == Kind::kConstant) {
      Dense value = inner.as<ConstantAttrs>().value;
      value.type.dims = dims_;
      value.splat = true;
      attrs = ConstantAttrs{std::move(value)};
    } else if (!is_elementwise(inner.kind) && !view) {
      throw Error("only elementwise ops are supported in the body of a scatter",
                  source_name(inner.kind), inner.loc);
    }
    Op* made = body_.region.append(view ? Kind::kReshape : inner.kind, operands,
                                   {Type{inner.type().elem, dims_}},
                                   view ? Attrs{NoAttrs{}} : std::move(attrs), inner.loc);
    map_[inner.result()] = made->result();
    if (!is_cheap(made->kind)) {
      ops_.push_back(made);
    }
  }

  // An argument given back is a copy.
  void give_back(const std::vector<Value*>& results) {
    for (Value* v : results) {
      Op* copy = body_.region.append(Kind::kReshape, {v}, {v->type}, NoAttrs{}, op_.loc);
      const bool made =
          v->def != nullptr && !is_cheap(v->def->kind) &&
          std::find(body_.results.begin(), body_.results.end(), v) == body_.results.end();
      body_.results.push_back(made ? v : copy->result());
      if (!made) {
        ops_.push_back(copy);
      }
    }
  }

  const Op& op_;
  CombineBody& body_;
  const Dims dims_;
  ValueMap map_;
  std::vector<const Op*> ops_;
};

}  // namespace

std::unique_ptr<const CombineBody> make_combine_body(const Op& op) {
  auto body = std::make_unique<CombineBody>();
  const std::vector<const Op*> ops = Vectorised(op, *body).run();
  NestContext context;
  context.is_copied = [](const Value*) { return false; };
  auto nest = build_nest(ops, {op.as<IndexedAttrs>().window[0]}, context);
  if (!nest) {
    throw Error("the update computation of the scatter does not compile to one vector loop",
                "stablehlo.scatter", op.loc);
  }
  body->nest = std::move(*nest);
  VpuGenOptions options;
  options.flat = true;
  options.col_loop = static_cast<int>(body->nest.loops.size()) - 1;
  for (size_t n = 0; n < body->nest.nodes.size(); ++n) {
    if (std::find(body->results.begin(), body->results.end(), body->nest.nodes[n].op->result()) !=
        body->results.end()) {
      options.stores.push_back(static_cast<int>(n));
    }
  }
  body->code = generate_vpu(body->nest, options);
  return body;
}

}  // namespace tpu::compiler
