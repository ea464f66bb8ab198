// See placement.hpp: one walk over main in program order.
#include "partition/placement.hpp"

#include <algorithm>
#include <optional>

namespace tpu::compiler {

namespace {

class Placer {
 public:
  explicit Placer(const Module& module) : module_(module) {}

  std::unordered_map<const Value*, Sharding> run() {
    const Function& main = *module_.main;
    for (size_t i = 0; i < main.args.size(); ++i) {
      std::optional<Sharding>& known = known_[main.body.args[i].get()];
      if (main.args[i].wanted) {
        known = main.args[i].wanted->sharding;
      }
    }
    for (const auto& op : main.body.ops) {
      place(*op);
    }
    std::unordered_map<const Value*, Sharding> out;
    for (const auto& [value, sharding] : known_) {
      out[value] = known_[root(value)].value_or(Sharding{});
    }
    return out;
  }

 private:
  [[noreturn]] static void fail(const Op& op, const std::string& message) {
    throw Error(message, source_name(op.kind), op.loc);
  }

  // A constraint gives the array that it is given.
  const Value* root(const Value* v) const {
    const auto it = root_.find(v);
    return it == root_.end() ? v : it->second;
  }

  // What is not known by its first use is replicated.
  const Sharding& sharding_of(const Value* v) {
    std::optional<Sharding>& s = known_[root(v)];
    if (!s) {
      s = Sharding{};
    }
    return *s;
  }

  void place(const Op& op) {
    switch (op.kind) {
      case Kind::kManualComputation:
        manual_computation(op);
        return;
      case Kind::kShardingConstraint:
      case Kind::kReshard:
        constraint(op);
        return;
      case Kind::kReturn:
        for (const Value* v : op.operands) {
          sharding_of(v);
        }
        return;
      default:
        on_every_core(op);
    }
  }

  void manual_computation(const Op& op) {
    const auto& a = op.as<ManualAttrs>();
    for (size_t i = 0; i < op.operands.size(); ++i) {
      std::optional<Sharding>& s = known_[root(op.operands[i])];
      if (!s) {
        s = a.in[i].sharding;
      } else if (*s != a.in[i].sharding) {
        fail(op,
             "operand " + std::to_string(i) +
                 " arrives in another sharding than in_specs says; pass it as an argument of the "
                 "whole program, or compute it inside");
      }
    }
    for (size_t axis = 0; axis < module_.mesh.axes.size(); ++axis) {
      if (std::find(a.manual_axes.begin(), a.manual_axes.end(), static_cast<int>(axis)) ==
          a.manual_axes.end()) {
        fail(op, "the mesh axis '" + module_.mesh.axes[axis].name +
                     "' is left to automatic partitioning, which is not supported; let "
                     "jax.shard_map be manual over all axes");
      }
    }
    check_inside(*op.regions[0]);
    for (size_t i = 0; i < op.results.size(); ++i) {
      known_[op.result(i)] = a.out[i].sharding;
    }
  }

  // Nothing moves an array: only what it is already may be asked for.
  void constraint(const Op& op) {
    check_replicated(op);
    const auto& a = op.as<ShardingAttrs>();
    for (size_t d = 0; d < op.type().dims.size(); ++d) {
      if (d < a.open.size() && a.open[d]) {
        continue;
      }
      const Sharding& s = sharding_of(op.operands[0]);
      if (d < s.dim_axes.size() && !s.dim_axes[d].empty()) {
        fail(op, "dimension " + std::to_string(d) +
                     " of a sharded array is wanted whole on every core, which is not supported "
                     "outside of jax.shard_map; gather it inside with jax.lax.all_gather and give "
                     "it out_specs without an axis there");
      }
    }
    root_[op.result()] = root(op.operands[0]);
    known_[op.result()];
  }

  static void check_replicated(const Op& op) {
    if (!op.as<ShardingAttrs>().sharding.is_replicated()) {
      fail(op, "automatic partitioning is not supported; use jax.shard_map");
    }
  }

  // What stands inside of regions, those of shard_map and those of loops and branches.
  static void check_inside(const Region& region) {
    walk(region, [](const Op& op) {
      if (op.kind == Kind::kManualComputation) {
        fail(op, kShardMapInControl);
      } else if (op.kind == Kind::kShardingConstraint || op.kind == Kind::kReshard) {
        check_replicated(op);
      }
    });
  }

  void on_every_core(const Op& op) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (!sharding_of(op.operands[i]).is_replicated()) {
        fail(op, "an op outside of jax.shard_map works on a sharded array (operand " +
                     std::to_string(i) +
                     "); automatic partitioning is not supported, move the op inside");
      }
    }
    for (const auto& region : op.regions) {
      check_inside(*region);
      walk(*region, [&](const Op& inner) {
        for (const Value* v : inner.operands) {
          if (known_.count(v) != 0 && !sharding_of(v).is_replicated()) {
            fail(op, "an op outside of jax.shard_map works on a sharded array; move it inside");
          }
        }
      });
    }
    for (const auto& result : op.results) {
      known_[result.get()] = Sharding{};
    }
  }

  const Module& module_;
  std::unordered_map<const Value*, std::optional<Sharding>> known_;
  std::unordered_map<const Value*, const Value*> root_;
};

}  // namespace

std::unordered_map<const Value*, Sharding> place_values(const Module& module) {
  return Placer(module).run();
}

}  // namespace tpu::compiler
