// See partition.hpp. placement.cpp decides and refuses; here the graph is rewritten.
#include "partition/partition.hpp"

#include <set>

#include "partition/placement.hpp"

namespace tpu::compiler {

namespace {

using Ops = std::vector<std::unique_ptr<Op>>;

// Takes the ops of shard_map out of their region and drops constraints.
class Splicer {
 public:
  void run(Region& body) {
    flatten(body);
    replace_all_uses(body, same_);
  }

 private:
  void flatten(Region& region) {
    Ops ops;
    ops.swap(region.ops);
    splice(std::move(ops), region);
  }

  void splice(Ops ops, Region& to) {
    for (auto& op : ops) {
      if (op->kind == Kind::kManualComputation) {
        Region& inner = *op->regions[0];
        for (size_t i = 0; i < op->operands.size(); ++i) {
          same_[inner.args[i].get()] = mapped(op->operands[i], same_);
        }
        std::unique_ptr<Op> ret = std::move(inner.ops.back());
        inner.ops.pop_back();
        splice(std::move(inner.ops), to);
        for (size_t i = 0; i < op->results.size(); ++i) {
          same_[op->result(i)] = mapped(ret->operands[i], same_);
        }
        gone_.push_back(std::move(op));
      } else if (is_global_only(op->kind)) {
        same_[op->result()] = mapped(op->operands[0], same_);
        gone_.push_back(std::move(op));
      } else {
        for (const auto& inner : op->regions) {
          flatten(*inner);
        }
        op->parent = &to;
        to.ops.push_back(std::move(op));
      }
    }
  }

  ValueMap same_;  // what stands for a value of the global graph
  Ops gone_;       // alive until nobody uses their results
};

// A donated argument without a fixed result takes the first free result of the same type and
// sharding.
void assign_donations(Function& f) {
  std::set<int> taken;
  for (const ArgInfo& a : f.args) {
    taken.insert(a.alias_result);
  }
  for (ArgInfo& a : f.args) {
    for (size_t r = 0; a.donated && a.alias_result < 0 && r < f.results.size(); ++r) {
      const ResultInfo& result = f.results[r];
      if (taken.count(static_cast<int>(r)) == 0 && result.global == a.global &&
          result.sharding == a.sharding) {
        a.alias_result = static_cast<int>(r);
        taken.insert(a.alias_result);
      }
    }
  }
}

}  // namespace

void partition(Module& module) {
  if (!module.global) {
    return;
  }
  Function& main = *module.main;
  const auto placed = place_values(module);
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < main.results.size(); ++i) {
    ResultInfo& result = main.results[i];
    result.sharding = placed.at(ret->operands[i]);
    if (result.wanted && result.wanted->sharding != result.sharding) {
      throw Error("result " + std::to_string(i) +
                      " is wanted in another sharding than jax.shard_map gives; make out_specs and "
                      "the sharding of the result equal",
                  "func", main.loc);
    }
  }
  Splicer().run(main.body);
  for (size_t i = 0; i < main.args.size(); ++i) {
    Value& v = *main.body.args[i];
    main.args[i].sharding = placed.at(&v);
    v.type = local_type(main.args[i].global, module.mesh, main.args[i].sharding, "func", main.loc);
  }
  assign_donations(main);
  module.global = false;
}

}  // namespace tpu::compiler
