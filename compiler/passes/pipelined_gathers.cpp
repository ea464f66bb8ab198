// Looks at each counted loop; those inside of others first.
#include "passes/pipelined_gathers.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/control.hpp"
#include "ir/op_traits.hpp"
#include "passes/dce.hpp"

namespace tpu::compiler {

namespace {

constexpr int64_t kLeastGathered = int64_t{1} << 20;   // of a result: smaller ones are latency
constexpr int64_t kMostGathered = int64_t{256} << 20;  // of a loop, which keeps them for its time
constexpr int64_t kLeastTrips = 3;

bool multiplies_matrices(const Op& op) {
  return op.kind == Kind::kDotGeneral || op.kind == Kind::kConvolution;
}

// Ops that may be computed an iteration earlier: they take little time, and have no effect.
bool may_come_earlier(const Op& op) {
  return op.regions.empty() && !has_side_effect(op) && !multiplies_matrices(op) &&
         (is_elementwise(op.kind) || has_trait(op.kind, trait::kView) ||
          op.kind == Kind::kConstant || op.kind == Kind::kIota || op.kind == Kind::kDynamicSlice);
}

class LoopGathers {
 public:
  LoopGathers(Op& loop, const CountedLoop& counted)
      : loop_(loop), counted_(counted), body_(*loop.regions[1]) {
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      position_[body_.ops[i].get()] = i;
    }
  }

  bool run() {
    for (const Op* gather : candidates()) {
      carry(*gather);
      changed_ = true;
    }
    return changed_;
  }

 private:
  std::vector<const Op*> candidates() {
    std::vector<const Op*> found;
    int64_t bytes = 0;
    const Uses uses = compute_uses(body_);
    for (const auto& op : body_.ops) {
      if (multiplies_matrices(*op)) {
        break;  // later ones have it in front of their readers
      }
      if (op->kind == Kind::kAllGather && op->operands.size() == 1 &&
          op->type().bytes() >= kLeastGathered && bytes + op->type().bytes() <= kMostGathered &&
          product_behind(*op, uses) && find_cone(*op)) {
        found.push_back(op.get());
        bytes += op->type().bytes();
      }
    }
    return found;
  }

  // True if a product comes behind the last reader, which is in the body itself.
  bool product_behind(const Op& gather, const Uses& uses) {
    const auto readers = uses.find(gather.result());
    if (readers == uses.end()) {
      return false;
    }
    size_t last = 0;
    for (const Op* reader : readers->second) {
      if (reader->parent != &body_ || reader->kind == Kind::kReturn) {
        return false;
      }
      last = std::max(last, position_.at(reader));
    }
    last_reader_[&gather] = body_.ops[last].get();
    return std::any_of(body_.ops.begin() + static_cast<ptrdiff_t>(last) + 1, body_.ops.end(),
                       [](const auto& op) { return multiplies_matrices(*op); });
  }

  // The ops of the body that make the operand, in order, and the gather. False: it depends on what
  // an iteration computes.
  bool find_cone(const Op& gather) {
    std::unordered_set<const Op*> cone{&gather};
    std::vector<const Op*> waiting{&gather};
    while (!waiting.empty()) {
      const Op* op = waiting.back();
      waiting.pop_back();
      for (const Value* v : op->operands) {
        if (v->def == nullptr ? v->owner == &body_ && !is_known(*v)
                              : v->def->parent == &body_ && !may_come_earlier(*v->def)) {
          return false;
        }
        if (v->def != nullptr && v->def->parent == &body_ && cone.insert(v->def).second) {
          waiting.push_back(v->def);
        }
      }
    }
    std::vector<const Op*>& ordered = cones_[&gather];
    for (const auto& op : body_.ops) {
      if (cone.contains(op.get())) {
        ordered.push_back(op.get());
      }
    }
    return true;
  }

  // An argument of the body that is known before the iteration begins.
  bool is_known(const Value& arg) const {
    const auto index = static_cast<size_t>(arg.index);
    return index == counted_.index || body_.terminator()->operands[index] == &arg;
  }

  void carry(const Op& gather) {
    const Type type = gather.type();
    Region before, behind;
    Value* first = before_loop(gather, before);
    loop_.operands.push_back(first);
    loop_.add_result(type);
    loop_.regions[0]->add_arg(type);
    Value* carried = body_.add_arg(type);
    Value* next = for_next(gather, behind);
    replace_all_uses(body_, gather.result(), carried);
    body_.terminator()->operands.push_back(next);
    insert(behind, body_, *last_reader_.at(&gather), 1);
    insert(before, *loop_.parent, loop_, 0);
  }

  Value* number(Region& to, int64_t value, const Op& like) const {
    const Type& type = body_.args[counted_.index]->type;
    return to
        .append(Kind::kConstant, {}, {type}, ConstantAttrs{make_splat_int(type, value)}, like.loc)
        ->result();
  }

  Value* before_loop(const Op& gather, Region& to) const {
    ValueMap map;
    for (size_t i = 0; i < body_.args.size(); ++i) {
      map[body_.args[i].get()] = loop_.operands[i];
    }
    return cloned(gather, to, map);
  }

  Value* for_next(const Op& gather, Region& to) const {
    Value* counter = body_.args[counted_.index].get();
    ValueMap map;
    map[counter] = to.append(Kind::kAdd, {counter, number(to, counted_.step, gather)},
                             {counter->type}, NoAttrs{}, gather.loc)
                       ->result();
    return cloned(gather, to, map);
  }

  Value* cloned(const Op& gather, Region& to, ValueMap& map) const {
    Op* last = nullptr;
    for (const Op* op : cones_.at(&gather)) {
      last = clone_op(*op, to, map);
    }
    return last->result();
  }

  // Moves the ops of a region in front of `at` (0) or behind it (1).
  static void insert(Region& from, Region& to, const Op& at, ptrdiff_t behind) {
    const auto place =
        std::ranges::find(to.ops, &at, [](const auto& op) { return op.get(); }) + behind;
    for (const auto& op : from.ops) {
      op->parent = &to;
    }
    to.ops.insert(place, std::make_move_iterator(from.ops.begin()),
                  std::make_move_iterator(from.ops.end()));
    from.ops.clear();
  }

  Op& loop_;
  const CountedLoop counted_;
  Region& body_;
  bool changed_ = false;
  std::unordered_map<const Op*, size_t> position_;
  std::unordered_map<const Op*, const Op*> last_reader_;         // by gather
  std::unordered_map<const Op*, std::vector<const Op*>> cones_;  // by gather
};

bool pipeline_region(Region& region) {
  std::vector<Op*> ops;
  for (const auto& op : region.ops) {
    ops.push_back(op.get());
  }
  bool changed = false;
  for (Op* op : ops) {
    for (const auto& inner : op->regions) {
      changed = pipeline_region(*inner) || changed;
    }
    const auto counted = counted_loop(*op);
    if (counted && counted->trips >= kLeastTrips) {
      changed = LoopGathers(*op, *counted).run() || changed;
    }
  }
  return changed;
}

}  // namespace

bool pipeline_gathers(Module& module) {
  const bool changed = pipeline_region(module.main->body);
  if (changed) {
    remove_dead_ops(module);
  }
  return changed;
}

}  // namespace tpu::compiler
