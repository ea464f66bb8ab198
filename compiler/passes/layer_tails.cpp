#include "passes/layer_tails.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ir/control.hpp"
#include "ir/op_traits.hpp"

namespace tpu::compiler {

namespace {

// Of a sum that others than tails read, unless it is returned: a loop has to keep it for all
// layers. What is not a sum has no fewer bytes than what it is made of.
constexpr int64_t kMostReadBytes = 1 << 16;
constexpr int kMostRounds = 8;  // each leaves out what does not fit in the one before

uint64_t mixed(uint64_t a, uint64_t b) {
  return a ^ (b * 0x9e3779b97f4a7c15 + (a << 12) + (a >> 4) + 0x7f4a7c15);
}

uint64_t hash_of(const std::string& text) { return std::hash<std::string>()(text); }

bool may_follow(const Op& op) {
  if (op.results.size() != 1 || op.kind == Kind::kConstant) {
    return false;
  }
  return is_elementwise(op.kind) || op.kind == Kind::kIota ||
         (has_trait(op.kind, trait::kView) && op.kind != Kind::kOptimizationBarrier) ||
         (op.kind == Kind::kReduce && op.operands.size() == 2 && free_values(op).empty());
}

class TailFinder {
 public:
  TailFinder(const Region& main, const RepeatedLayers& layers,
             const std::unordered_set<const Op*>& others, const Uses& uses)
      : main_(main), layers_(layers), others_(others), uses_(uses) {
    for (const auto& arg : main.args) {
      facts_[arg.get()] = {kOwn, 0, hash_of("argument " + to_string(arg->type))};
    }
    for (size_t i = 0; i < main.ops.size(); ++i) {
      place_[main.ops[i].get()] = i;
    }
    find_needs();
  }

  LayerTails run() {
    for (int round = 0; round < kMostRounds; ++round) {
      find_facts();
      find_phases();
      find_own_groups();
      const size_t before = left_out_.size();
      leave_out();
      if (left_out_.size() == before) {
        return tails();
      }
    }
    return {};
  }

 private:
  static constexpr int kShared = -1;  // the same for all layers, or nothing that a tail can have
  static constexpr int kOwn = -2;     // made of arguments alone: of a layer if its users are

  struct Fact {
    int layer = kShared;
    int phase = 0;
    uint64_t hash = 0;  // equal: the same op on operands of equal hashes
    bool in_tail = false;
  };
  // The ops that do the same in each layer.
  struct Group {
    std::vector<const Op*> ops;
    int phase = 0;
  };
  // Ops of equal hashes, by layer, that may be groups; `grouped` of each layer are.
  struct Candidates {
    std::vector<std::vector<size_t>> places;
    size_t grouped = 0;
  };

  const Fact& fact(const Value* v) const {
    static const Fact none;
    const auto found = facts_.find(v);
    return found == facts_.end() ? none : found->second;
  }
  const Fact& fact(const Op& op) const {
    return op.results.size() == 1 ? fact(op.result()) : fact(nullptr);
  }
  Op& op_at(size_t place) const { return *main_.ops[place]; }

  void find_needs() {
    readers_.resize(main_.ops.size());
    needs_.resize(main_.ops.size());
    for (size_t i = 0; i < main_.ops.size(); ++i) {
      std::unordered_set<const Op*> makers;
      for (const Value* v : dependencies(op_at(i))) {
        if (v->def != nullptr && place_.contains(v->def) && makers.insert(v->def).second) {
          readers_[place_.at(v->def)].push_back(i);
          ++needs_[i];
        }
      }
    }
  }

  // In an order in which all that an op reads is known. Where nothing more is, candidates that no
  // op of some layer equals are in no tail, such as parts of a sum over all layers.
  void find_facts() {
    groups_.clear();
    candidates_.clear();
    waiting_.clear();
    known_.clear();
    std::vector<size_t> needs = needs_;
    for (size_t i = 0; i < needs.size(); ++i) {
      if (needs[i] == 0) {
        look_at(i);
      }
    }
    for (size_t next = 0; next < known_.size() || !waiting_.empty(); ++next) {
      if (next == known_.size()) {
        for (const size_t i : std::exchange(waiting_, {})) {
          share(i);
        }
      }
      for (const size_t reader : readers_[known_[next]]) {
        if (--needs[reader] == 0) {
          look_at(reader);
        }
      }
    }
  }

  // What reads it may be looked at.
  void know(size_t place) { known_.push_back(place); }

  void look_at(size_t place) {
    Op& op = op_at(place);
    if (op.kind == Kind::kConstant) {
      facts_[op.result()] = {kShared, 0, hash_of("constant " + to_string(op.type()))};
      know(place);
    } else if (layers_.holds(&op)) {
      const RepeatedLayers::Place at = *layers_.place_of(op.result(0));
      for (size_t r = 0; r < op.results.size(); ++r) {
        facts_[op.result(r)] = {static_cast<int>(at.layer), 0, mixed(mixed(1, at.op), r)};
      }
      know(place);
    } else if (!may_follow(op) || others_.contains(&op) || left_out_.contains(&op)) {
      share(place);
    } else {
      try_tail(place);
    }
  }

  void share(size_t place) {
    Op& op = op_at(place);
    int phase = 0;
    for (const Value* v : dependencies(op)) {
      const Fact& f = fact(v);
      phase = std::max(phase, f.phase + (f.layer >= 0 ? 1 : 0));
    }
    for (size_t r = 0; r < op.results.size(); ++r) {
      facts_[op.result(r)] = {kShared, phase, mixed(mixed(2, place), r)};
    }
    know(place);
  }

  void try_tail(size_t place) {
    Op& op = op_at(place);
    Fact made;
    bool own = false;
    for (const Value* v : op.operands) {
      const Fact& f = fact(v);
      if (f.layer >= 0 && made.layer >= 0 && f.layer != made.layer) {
        share(place);
        return;
      }
      made.layer = std::max(made.layer, f.layer);
      made.phase = std::max(made.phase, f.phase);
      made.hash = mixed(made.hash, f.hash);
      own = own || f.layer == kOwn;
    }
    if (made.layer < 0 && !own) {
      share(place);
      return;
    }
    const auto [text, fresh] = texts_.try_emplace(&op, 0);
    if (fresh) {
      text->second = hash_of(layer_text(op));
    }
    made.hash = mixed(text->second, made.hash);
    made.in_tail = made.layer >= 0;
    made.layer = made.in_tail ? made.layer : kOwn;
    facts_[op.result()] = made;
    if (made.in_tail) {
      add_candidate(place, made);
    } else {
      know(place);
    }
  }

  void add_candidate(size_t place, const Fact& made) {
    Candidates& equal = candidates_[made.hash];
    equal.places.resize(layers_.layers());
    equal.places[static_cast<size_t>(made.layer)].push_back(place);
    waiting_.insert(place);
    if (!std::ranges::all_of(equal.places,
                             [&](const auto& ops) { return ops.size() > equal.grouped; })) {
      return;
    }
    Group group;
    for (const auto& ops : equal.places) {
      const size_t member = ops[equal.grouped];
      group.ops.push_back(&op_at(member));
      group.phase = std::max(group.phase, fact(op_at(member)).phase);
    }
    for (const auto& ops : equal.places) {
      const size_t member = ops[equal.grouped];
      Fact& f = facts_.at(op_at(member).result());
      f.hash = mixed(f.hash, equal.grouped);
      f.phase = group.phase;
      waiting_.erase(member);
      know(member);
    }
    ++equal.grouped;
    groups_.push_back(std::move(group));
  }

  // Of the tail that all users of the value are in: its layer, and the first of its phases.
  std::optional<std::pair<int, int>> user_tail(const Value* v) const {
    std::optional<std::pair<int, int>> tail;
    const auto users = uses_.find(v);
    if (users == uses_.end()) {
      return std::nullopt;
    }
    for (const Op* user : users->second) {
      const Fact& f = fact(*user);
      if (!f.in_tail || user->parent != &main_ || (tail && tail->first != f.layer)) {
        return std::nullopt;
      }
      tail = {f.layer, tail ? std::min(tail->second, f.phase) : f.phase};
    }
    return tail;
  }

  // From the last op on: what is made of arguments belongs to the layer that alone reads it, and
  // what only a later phase reads is computed there.
  void find_phases() {
    own_.clear();
    for (auto it = main_.ops.rbegin(); it != main_.ops.rend(); ++it) {
      Op& op = **it;
      const Fact& before = fact(op);
      if (!before.in_tail && before.layer != kOwn) {
        continue;
      }
      if (const auto tail = user_tail(op.result())) {
        Fact& f = facts_.at(op.result());
        if (!f.in_tail) {
          own_.push_back(&op);
        }
        f.layer = tail->first;
        f.in_tail = true;
        f.phase = op.kind == Kind::kReduce ? f.phase : tail->second;
      }
    }
    std::ranges::reverse(own_);
    for (Group& group : groups_) {
      group.phase = fact(*group.ops[0]).phase;
    }
  }

  void find_own_groups() {
    std::unordered_map<uint64_t, std::vector<std::vector<const Op*>>> equal;  // by hash, layer
    for (const Op* op : own_) {
      auto& by_layer = equal[fact(*op).hash];
      by_layer.resize(layers_.layers());
      by_layer[static_cast<size_t>(fact(*op).layer)].push_back(op);
    }
    for (const Op* op : own_) {  // in the order of the first layer
      const auto& by_layer = equal.at(fact(*op).hash);
      if (!std::ranges::all_of(by_layer,
                               [&](const auto& ops) { return ops.size() == by_layer[0].size(); })) {
        left_out_.insert(op);
      } else if (fact(*op).layer == 0) {
        const auto nth = std::ranges::find(by_layer[0], op) - by_layer[0].begin();
        Group group{{}, fact(*op).phase};
        for (const auto& ops : by_layer) {
          group.ops.push_back(ops[static_cast<size_t>(nth)]);
        }
        groups_.push_back(std::move(group));
      }
    }
  }

  void leave_out() {
    for (const Group& group : groups_) {
      if (!fits(group)) {
        left_out_.insert(group.ops.begin(), group.ops.end());
      }
    }
  }

  bool is_read_by_others(const Op& op) const {
    const auto users = uses_.find(op.result());
    return users != uses_.end() && std::ranges::any_of(users->second, [&](const Op* user) {
             const bool in_tail = user->parent == &main_ && fact(*user).in_tail;
             return !in_tail && user->kind != Kind::kReturn &&
                    (others_.contains(user) || layers_.holds(user) || op.kind != Kind::kReduce ||
                     op.type().bytes() > kMostReadBytes);
           });
  }

  // Operand `k` of the ops is something that a loop can take.
  bool has_source(const std::vector<const Op*>& ops, size_t k) const {
    const Value* first = ops[0]->operands[k];
    if (fact(first).layer >= 0) {
      return true;
    }
    const auto all = [&](const auto& fits) {
      return std::ranges::all_of(ops, [&](const Op* op) { return fits(op->operands[k]); });
    };
    return all([&](const Value* v) { return v == first; }) || all([&](const Value* v) {
             return v->def == nullptr ? v->owner == &main_ : v->def->kind == Kind::kConstant;
           });
  }

  bool fits(const Group& group) const {
    for (const Op* op : group.ops) {
      if (fact(*op).phase != group.phase || is_read_by_others(*op)) {
        return false;
      }
    }
    for (size_t k = 0; k < group.ops[0]->operands.size(); ++k) {
      if (!has_source(group.ops, k)) {
        return false;
      }
    }
    return true;
  }

  LayerTails tails() {
    std::ranges::sort(groups_, {}, [&](const Group& group) { return place_.at(group.ops[0]); });
    std::map<int, std::vector<std::vector<Op*>>> phases;
    for (const Group& group : groups_) {
      std::vector<std::vector<Op*>>& phase = phases[group.phase];
      phase.resize(layers_.layers());
      for (size_t t = 0; t < group.ops.size(); ++t) {
        phase[t].push_back(&op_at(place_.at(group.ops[t])));
      }
    }
    LayerTails found;
    if (phases.empty()) {
      return found;
    }
    phases[0].resize(layers_.layers());
    for (auto& [phase, ops] : phases) {
      found.phases.push_back(std::move(ops));
    }
    return found;
  }

  const Region& main_;
  const RepeatedLayers& layers_;
  const std::unordered_set<const Op*>& others_;
  const Uses& uses_;
  std::unordered_map<const Op*, size_t> place_;  // in main
  std::vector<std::vector<size_t>> readers_;     // by place of an op
  std::vector<size_t> needs_;                    // ops that it reads
  std::unordered_map<const Value*, Fact> facts_;
  std::unordered_map<const Op*, uint64_t> texts_;
  std::unordered_set<const Op*> left_out_;
  // Of a round.
  std::vector<size_t> known_;
  std::set<size_t> waiting_;
  std::unordered_map<uint64_t, Candidates> candidates_;
  std::vector<const Op*> own_;
  std::vector<Group> groups_;
};

}  // namespace

LayerTails find_tails(const Region& main, const RepeatedLayers& layers,
                      const std::unordered_set<const Op*>& others, const Uses& uses) {
  const bool acts = std::ranges::any_of(main.ops, [](const auto& op) {
    return (op->kind != Kind::kReturn && has_side_effect(*op)) ||
           std::ranges::any_of(op->regions, [](const auto& r) { return has_effects(*r); });
  });
  return acts ? LayerTails{} : TailFinder(main, layers, others, uses).run();
}

}  // namespace tpu::compiler
