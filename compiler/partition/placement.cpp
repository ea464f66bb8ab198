// See placement.hpp: one walk over main in program order.
#include "partition/placement.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

class Placer {
 public:
  explicit Placer(const Module& module) : module_(module) {}

  std::optional<std::unordered_map<const Value*, Sharding>> run() {
    const Function& main = *module_.main;
    for (size_t i = 0; i < main.args.size(); ++i) {
      std::optional<Sharding>& known = known_[main.body.args[i].get()];
      if (main.args[i].wanted) {
        known = main.args[i].wanted->sharding;
      }
    }
    for (const auto& op : main.body.ops) {
      if (!place(*op)) {
        return std::nullopt;
      }
    }
    std::unordered_map<const Value*, Sharding> out;
    for (const auto& [value, sharding] : known_) {
      out[value] = known_[root(value)].value_or(Sharding{});
    }
    return out;
  }

 private:
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

  // False where something would have to move.
  bool place(const Op& op) {
    switch (op.kind) {
      case Kind::kManualComputation:
        return manual_computation(op);
      case Kind::kShardingConstraint:
      case Kind::kReshard:
        return constraint(op);
      case Kind::kReturn:
        return results(op);
      case Kind::kCustomCall:
        return false;
        TPU_CASES(SOURCE, ELEMENTWISE, SHAPE, CONTRACTION, BODY, CONTROL, COLLECTIVE, HOST, WHOLE,
                  MATRIX, SIZED)
      case Kind::kCall:
      case Kind::kComposite:
        return on_every_core(op);
    }
    return false;
  }

  bool manual_computation(const Op& op) {
    const auto& a = op.as<ManualAttrs>();
    for (size_t i = 0; i < op.operands.size(); ++i) {
      std::optional<Sharding>& s = known_[root(op.operands[i])];
      if (!s) {
        s = a.in[i].sharding;
      } else if (*s != a.in[i].sharding) {
        return false;
      }
    }
    for (size_t axis = 0; axis < module_.mesh.axes.size(); ++axis) {
      if (std::find(a.manual_axes.begin(), a.manual_axes.end(), static_cast<int>(axis)) ==
          a.manual_axes.end()) {
        return false;
      }
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      known_[op.result(i)] = a.out[i].sharding;
    }
    return is_plain(*op.regions[0]);
  }

  // Nothing moves an array: only what it is already may be asked for.
  bool constraint(const Op& op) {
    if (!is_replicated_constraint(op)) {
      return false;
    }
    const auto& a = op.as<ShardingAttrs>();
    for (size_t d = 0; d < op.type().dims.size(); ++d) {
      const Sharding& s = sharding_of(op.operands[0]);
      const bool open = d < a.open.size() && a.open[d];
      if (!open && d < s.dim_axes.size() && !s.dim_axes[d].empty()) {
        return false;
      }
    }
    root_[op.result()] = root(op.operands[0]);
    known_[op.result()];
    return true;
  }

  bool results(const Op& ret) {
    const Function& main = *module_.main;
    for (size_t i = 0; i < ret.operands.size(); ++i) {
      const Sharding& s = sharding_of(ret.operands[i]);
      if (main.results[i].wanted && main.results[i].wanted->sharding != s) {
        return false;
      }
    }
    return true;
  }

  static bool is_replicated_constraint(const Op& op) {
    return op.as<ShardingAttrs>().sharding.is_replicated() && !op.as<ShardingAttrs>().group;
  }

  // No shard_map and no constraint that cuts inside of a region: of shard_map, a loop, a branch.
  static bool is_plain(const Region& region) {
    bool plain = true;
    walk(region, [&](const Op& op) {
      const bool constrains = op.kind == Kind::kShardingConstraint || op.kind == Kind::kReshard;
      plain = plain && op.kind != Kind::kManualComputation && op.kind != Kind::kCustomCall &&
              (!constrains || is_replicated_constraint(op));
    });
    return plain;
  }

  bool on_every_core(const Op& op) {
    bool whole = std::all_of(op.operands.begin(), op.operands.end(),
                             [&](const Value* v) { return sharding_of(v).is_replicated(); });
    for (const auto& region : op.regions) {
      whole = whole && is_plain(*region);
      walk(*region, [&](const Op& inner) {
        for (const Value* v : inner.operands) {
          whole = whole && (known_.count(v) == 0 || sharding_of(v).is_replicated());
        }
      });
    }
    for (const auto& result : op.results) {
      known_[result.get()] = Sharding{};
    }
    return whole;
  }

  const Module& module_;
  std::unordered_map<const Value*, std::optional<Sharding>> known_;
  std::unordered_map<const Value*, const Value*> root_;
};

}  // namespace

std::optional<std::unordered_map<const Value*, Sharding>> place_values(const Module& module) {
  return Placer(module).run();
}

}  // namespace tpu::compiler
