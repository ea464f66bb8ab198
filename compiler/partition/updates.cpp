// See updates.hpp: backwards from the results, then by groups of values that hang together.
#include "partition/updates.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>

#include "partition/unreduced.hpp"

namespace tpu::compiler {
namespace {

class Updates {
 public:
  Updates(const Module& module, const Placements& placements)
      : module_(module), placements_(placements) {
    walk(module.main->body, [&](const Op& op) {
      for (const Value* v : op.operands) {
        ++uses_[v].all;
      }
    });
  }

  std::unordered_map<const Value*, Spec> run() {
    from_results();
    const auto& ops = module_.main->body.ops;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      if (is_elementwise((*op)->kind) && (*op)->results.size() == 1 &&
          is_settled((*op)->result())) {
        through(**op);
      }
    }
    return chosen();
  }

 private:
  // How often a value is used, and how often on the way to results that lie as `place`.
  struct Uses {
    int all = 0, settled = 0;
    const Spec* place = nullptr;
  };

  bool is_settled(const Value* v) const {
    const auto it = uses_.find(v);
    return it != uses_.end() && it->second.place != nullptr && it->second.all == it->second.settled;
  }

  void use(const Value* v, const Spec& place) {
    Uses& uses = uses_[v];
    if (uses.place == nullptr || *uses.place == place) {
      uses.place = &place;
      ++uses.settled;
    }
  }

  // As the program wants the result, or as the argument lies whose memory it takes.
  std::optional<Spec> place_of_result(size_t i) const {
    const Function& main = *module_.main;
    const ResultInfo& result = main.results[i];
    if (result.wanted) {
      const auto& open = result.wanted->open;
      Spec spec = spec_of(result.wanted->sharding, result.global);
      const bool leaves_open = std::find(open.begin(), open.end(), true) != open.end();
      return !leaves_open && can_cut(module_.mesh, result.global, spec) ? std::optional(spec)
                                                                        : std::nullopt;
    }
    for (size_t a = 0; a < main.args.size(); ++a) {
      if (main.args[a].alias_result == static_cast<int>(i)) {
        return placements_.of(main.body.args[a].get());
      }
    }
    return std::nullopt;
  }

  void from_results() {
    const Op& ret = *module_.main->body.terminator();
    for (size_t i = 0; i < ret.operands.size(); ++i) {
      if (auto place = place_of_result(i)) {
        places_.push_back(std::make_unique<Spec>(std::move(*place)));
        use(ret.operands[i], *places_.back());
        results_.insert(ret.operands[i]);
      }
    }
  }

  // The operands lead to where the result does. Ops that share a value are one group.
  void through(const Op& op) {
    const Value* result = op.result();
    const size_t me = parent_.size();
    parent_.push_back(me);
    made_[result] = me;
    if (const auto it = user_.find(result); it != user_.end()) {
      parent_[root(me)] = root(it->second);
    }
    const Spec& place = *uses_.at(result).place;
    for (const Value* v : op.operands) {
      if (!v->type.is_scalar() && !is_free(v)) {
        use(v, place);
        const size_t other = user_.try_emplace(v, me).first->second;
        parent_[root(me)] = root(other);
      }
    }
  }

  size_t root(size_t n) {
    while (parent_[n] != n) {
      n = parent_[n] = parent_[parent_[n]];
    }
    return n;
  }

  std::unordered_map<const Value*, Spec> chosen() {
    std::vector<int64_t> saved(parent_.size());  // by group: bytes that need not move
    const auto moved = [&](const Value* v) {
      return moved_bytes(module_.mesh, v->type.bytes(), placements_.of(v), *uses_.at(v).place);
    };
    for (const auto& [v, op] : made_) {
      saved[root(op)] += results_.contains(v) ? moved(v) : 0;
    }
    for (const auto& [v, op] : user_) {
      saved[root(op)] -= made_.contains(v) ? 0 : moved(v);
    }
    std::unordered_map<const Value*, Spec> out;
    for (const auto& [v, op] : made_) {
      if (saved[root(op)] > 0) {
        out.emplace(v, *uses_.at(v).place);
      }
    }
    return out;
  }

  const Module& module_;
  const Placements& placements_;
  std::unordered_map<const Value*, Uses> uses_;
  std::vector<std::unique_ptr<Spec>> places_;
  std::unordered_set<const Value*> results_;
  std::unordered_map<const Value*, size_t> made_, user_;  // by value: the op, an op
  std::vector<size_t> parent_;                            // of ops: towards the group's own
};

}  // namespace

std::unordered_map<const Value*, Spec> settled_updates(const Module& module,
                                                       const Placements& placements) {
  // Terms of sums have their own way through additions.
  return has_unreduced(module) ? std::unordered_map<const Value*, Spec>{}
                               : Updates(module, placements).run();
}

}  // namespace tpu::compiler
