// Graphs that the pass `partition` spreads over eight cores, and whose values the interpreter
// knows: the graph of one core, run on all cores, gives what the whole graph gives on one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "control_builder.hpp"
#include "ir/interpreter.hpp"
#include "ir/verify.hpp"
#include "legalize/legalize.hpp"
#include "partition/partition.hpp"
#include "passes/simplify.hpp"
#include "tensors.hpp"

namespace tpu::compiler::test {

using Cut = std::vector<std::vector<int>>;

inline ShardingAttrs by(Cut cut) {
  ShardingAttrs a;
  a.open.assign(cut.size(), false);
  a.sharding.dim_axes = std::move(cut);
  return a;
}

// One graph for one core, or for eight on the mesh a=2, b=2, c=2.
class Graph : public GraphBuilder {
 public:
  explicit Graph(bool many) : GraphBuilder(many ? 8 : 1), many_(many) {
    module().global = true;
    if (many) {
      module().mesh.axes = {{"a", 2}, {"b", 2}, {"c", 2}};
    }
  }
  Value* cut_arg(Type type, Cut cut) {
    Value* v = arg(std::move(type));
    if (many_) {
      module().main->args.back().wanted = by(std::move(cut));
    }
    return v;
  }
  Value* constrain(Value* x, Cut cut) {
    return many_ ? op(Kind::kShardingConstraint, {x}, x->type, by(std::move(cut))) : x;
  }
  // Cut by `cut`, a sum whose terms the cores have along `unreduced`.
  Value* terms(Value* x, Cut cut, std::vector<int> unreduced) {
    ShardingAttrs a = by(std::move(cut));
    a.sharding.unreduced = std::move(unreduced);
    return many_ ? op(Kind::kShardingConstraint, {x}, x->type, a) : x;
  }
  Value* sum(Value* x, Dims dims, Type type) {
    return reduce(x, constant({x->type.elem, {}}, 0), std::move(dims), std::move(type), Kind::kAdd);
  }
  Value* dot(Value* x, Value* y, Type type) {
    DotAttrs a;
    a.lhs_contract = {1};
    a.rhs_contract = {0};
    return op(Kind::kDotGeneral, {x, y}, std::move(type), a);
  }

 private:
  bool many_;
};

inline int64_t count_of(const Region& region, Kind kind) {
  return std::count_if(region.ops.begin(), region.ops.end(),
                       [&](const auto& op) { return op->kind == kind; });
}

using Build = std::function<Values(Graph&)>;

inline std::vector<Tensor> inputs(const Module& m) {
  std::vector<Tensor> out;
  for (const ArgInfo& arg : m.main->args) {
    std::vector<float> v(static_cast<size_t>(arg.global.count()));
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] = static_cast<float>((i * 7 + out.size() * 5) % 11) - 5;  // sums are exact
    }
    out.push_back(tensor<float>(arg.global, v));
  }
  return out;
}

inline Module& partitioned(Graph& g, const Build& build) {
  Module& m = g.done(build(g));
  verify(m);
  splice(m);
  expand_batch_norms(m);
  partition(m);
  verify(m);
  simplify(m);
  verify(m);
  return m;
}

// Equal values, and the collectives as text: "all_reduce all_gather".
inline std::string moves_of(const Build& build) {
  Graph one(false), many(true);
  Module& whole = one.done(build(one));
  splice(whole);
  expand_batch_norms(whole);
  Module& m = partitioned(many, build);
  const auto args = inputs(whole);
  const auto expected = interpret(whole, {args})[0];
  const auto got = join_results(m, interpret(m, split_arguments(m, args)));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(values<float>(got[i]), values<float>(expected[i])) << i << "\n" << print(m);
  }
  std::string text;
  for (const MovedArray& moved : m.moved) {
    text += (text.empty() ? "" : " ") + std::string(kind_name(moved.kind));
  }
  return text;
}

}  // namespace tpu::compiler::test
