// Pass `splice`: see partition.hpp. placement.cpp decides; here the graph is rewritten.
#include <algorithm>

#include "partition/donations.hpp"
#include "partition/partition.hpp"
#include "partition/placement.hpp"
#include "partition/unreduced.hpp"

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

// Constraints that leave every dimension open ask for nothing. JAX writes them behind each op of a
// shard_map that is not manual over all axes, also in the bodies of reductions. One of a scalar
// asks for the sum, if scalars may be terms.
class IdleConstraints {
 public:
  explicit IdleConstraints(bool terms) : terms_(terms) {}

  void drop(Region& body) {
    sweep(body);
    replace_all_uses(body, same_);
  }

 private:
  bool is_idle(const Op& op, bool in_reducer) const {
    if (op.kind != Kind::kShardingConstraint) {
      return false;
    }
    const auto& a = op.as<ShardingAttrs>();
    if (op.type().is_scalar()) {
      return in_reducer || !terms_;
    }
    return !a.group && a.sharding.is_replicated() && a.open.size() == op.type().dims.size() &&
           std::all_of(a.open.begin(), a.open.end(), [](bool open) { return open; });
  }

  static bool is_reducer(const Region& region) {
    const Op* owner = region.parent;
    return owner != nullptr && owner->kind != Kind::kWhile && owner->kind != Kind::kIf &&
           owner->kind != Kind::kCase && owner->kind != Kind::kManualComputation;
  }

  void sweep(Region& region) {
    const bool in_reducer = is_reducer(region);
    for (auto& op : region.ops) {
      if (is_idle(*op, in_reducer)) {
        same_[op->result()] = mapped(op->operands[0], same_);
        gone_.push_back(std::move(op));
        continue;
      }
      for (const auto& inner : op->regions) {
        sweep(*inner);
      }
    }
    std::erase(region.ops, nullptr);
  }

  const bool terms_;
  ValueMap same_;
  Ops gone_;  // alive until nobody uses their results
};

}  // namespace

void splice(Module& module) {
  if (!module.global) {
    return;
  }
  const auto placed = place_values(module);
  if (!placed) {
    IdleConstraints(has_unreduced(module)).drop(module.main->body);
    return;
  }
  Function& main = *module.main;
  const Op* ret = main.body.terminator();
  for (size_t i = 0; i < main.results.size(); ++i) {
    main.results[i].sharding = placed->at(ret->operands[i]);
  }
  Splicer().run(main.body);
  for (size_t i = 0; i < main.args.size(); ++i) {
    Value& v = *main.body.args[i];
    main.args[i].sharding = placed->at(&v);
    v.type = local_type(main.args[i].global, module.mesh, main.args[i].sharding, "func", main.loc);
  }
  assign_donations(main);
  module.global = false;
}

}  // namespace tpu::compiler
