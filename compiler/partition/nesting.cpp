// Where jax.shard_map may stand: in main, and in functions that main calls.
#include <string>
#include <unordered_map>

#include "partition/partition.hpp"
#include "partition/placement.hpp"

namespace tpu::compiler {

namespace {

class Nesting {
 public:
  explicit Nesting(const Module& module) {
    for (const auto& f : module.functions) {
      functions_.emplace(f->name, f.get());
    }
  }

  // The ops of main or of a function that it calls at `outer`; calls do not recurse (import).
  void check(const Region& region, const LocRef& outer) {
    for (const auto& op : region.ops) {
      const LocRef loc = nested_loc(outer, op->loc);
      for (const auto& inner : op->regions) {
        check_inside(*inner, outer);
      }
      const Function* callee = called(*op);
      if (callee != nullptr && holds_shard_map(callee)) {
        check(callee->body, loc);
      }
    }
  }

 private:
  const Function* called(const Op& op) const {
    if (op.kind != Kind::kCall) {
      return nullptr;
    }
    const auto it = functions_.find(op.as<CallAttrs>().callee);
    return it == functions_.end() ? nullptr : it->second;
  }

  bool holds_shard_map(const Function* f) {
    const auto known = holds_.emplace(f, false);  // false also ends recursive calls
    if (known.second) {
      bool found = false;
      walk(f->body, [&](const Op& op) {
        const Function* callee = called(op);
        found = found || op.kind == Kind::kManualComputation ||
                (callee != nullptr && holds_shard_map(callee));
      });
      holds_[f] = found;
    }
    return holds_[f];
  }

  void check_inside(const Region& region, const LocRef& outer) {
    walk(region, [&](const Op& op) {
      const Function* callee = called(op);
      if (op.kind == Kind::kManualComputation || (callee != nullptr && holds_shard_map(callee))) {
        throw Error(kShardMapInControl, source_name(op.kind), nested_loc(outer, op.loc));
      }
    });
  }

  std::unordered_map<std::string, const Function*> functions_;
  std::unordered_map<const Function*, bool> holds_;
};

}  // namespace

void check_shard_maps(const Module& module) {
  if (module.global) {
    Nesting(module).check(module.main->body, nullptr);
  }
}

}  // namespace tpu::compiler
