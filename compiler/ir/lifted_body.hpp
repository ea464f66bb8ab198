// Evaluation of ops with bodies on whole arrays. Private to the interpreter.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/eval.hpp"

namespace tpu::compiler::eval {

using Ref = std::shared_ptr<const Tensor>;
using Env = std::unordered_map<const Value*, Ref>;

Ref share(Tensor t);

// Evaluates a body of scalar ops on whole arrays at once: every scalar becomes `count` elements.
class LiftedBody {
 public:
  LiftedBody(const Op& owner, const Region& body, int64_t count, const Env& outer)
      : owner_(owner), body_(body), dims_{count}, outer_(outer) {}

  std::vector<Tensor> run(const std::vector<const Tensor*>& args);

 private:
  Tensor evaluate(const Op& op, const Tensors& in) const;
  Tensor splat(const Tensor& scalar) const;
  Ref get(const Value* v);

  const Op& owner_;
  const Region& body_;
  Dims dims_;
  const Env& outer_;
  Env values_;
};

// reduce_window, select_and_scatter, sort, map and batch normalisation, element by element as the
// specification of StableHLO writes them.
bool has_whole_op(Kind kind);
std::vector<Tensor> whole_op(const Op& op, const Tensors& in, const Env& env);

// Groups of whole_op, by file.
std::vector<Tensor> reduce_window(const Op& op, const Tensors& in, const Env& env);
Tensor select_and_scatter(const Op& op, const Tensors& in, const Env& env);
std::vector<Tensor> sort(const Op& op, const Tensors& in, const Env& env);
std::vector<Tensor> batch_norm(const Op& op, const Tensors& in);

}  // namespace tpu::compiler::eval
