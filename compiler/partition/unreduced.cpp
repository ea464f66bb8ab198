// See unreduced.hpp.
#include "partition/unreduced.hpp"

#include <algorithm>

#include "ir/op_traits.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {
namespace {

const Axes kNone;

// The operands of which a linear op may have terms: all of `operands` alike, or any one of them.
struct Linear {
  std::vector<size_t> operands;
  bool any_one = false;
};

bool adds(const Op& op) { return simple_reducer(*op.regions[0]) == Kind::kAdd; }

// A sum of integers wraps around in its own type: as a wider one, or as a float, it is another.
bool converts_sums(const Op& op) {
  const Elem from = op.operand_type(0).elem, to = op.type().elem;
  return is_float(from) ? is_float(to)
                        : !is_float(to) && from != Elem::kI1 && to != Elem::kI1 &&
                              elem_bytes(to) <= elem_bytes(from);
}

// Linear under conditions: LinearIn::kSometimes.
Linear conditionally_linear(const Op& op) {
  const auto first_if = [](bool condition) { return condition ? Linear{{0}} : Linear{}; };
  if (op.kind == Kind::kBroadcastInDim) {  // a scalar is summed: its broadcast is free anywhere
    return first_if(!op.operand_type(0).is_scalar());
  }
  if (op.kind == Kind::kDivide) {
    return first_if(is_float(op.type().elem));
  }
  if (op.kind == Kind::kConvert) {
    return first_if(converts_sums(op));
  }
  if (op.kind == Kind::kPad) {
    return first_if(is_zero(op.operands[1]));
  }
  if (op.kind == Kind::kReduce) {
    return first_if(op.operands.size() == 2 && adds(op) && is_zero(op.operands[1]));
  }
  if (op.kind == Kind::kScatter) {
    return op.operands.size() == 3 && adds(op) ? Linear{{0, 2}} : Linear{};
  }
  throw Error("internal: no rule says when this op is linear", source_name(op.kind), op.loc);
}

Linear linear_operands(const Op& op) {
  switch (traits_of(op.kind).linear) {
    case LinearIn::kNone:
      return {};
    case LinearIn::kFirst:
      return {{0}};
    case LinearIn::kFirstTwo:
      return {{0, 1}};
    case LinearIn::kChoices:
      return {{1, 2}};
    case LinearIn::kAll: {
      Linear all;
      for (size_t i = 0; i < op.operands.size(); ++i) {
        all.operands.push_back(i);
      }
      return all;
    }
    case LinearIn::kProduct:
      return {{0, 1}, true};
    case LinearIn::kSometimes:
      return conditionally_linear(op);
  }
  return {};
}

// Ops that a contraction may have behind it in what JAX takes for one.
bool moves_elements(const Op& op) {
  return op.kind == Kind::kTranspose || op.kind == Kind::kReshape ||
         (op.kind == Kind::kConvert && converts_sums(op));
}

}  // namespace

bool has_unreduced(const Module& module) {
  const auto says = [](const ShardingAttrs& a) { return !a.sharding.unreduced.empty(); };
  bool found = false;
  for (const ArgInfo& arg : module.main->args) {
    found = found || (arg.wanted && says(*arg.wanted));
  }
  walk(module.main->body, [&](const Op& op) {
    if (op.kind == Kind::kShardingConstraint || op.kind == Kind::kReshard) {
      found = found || says(op.as<ShardingAttrs>());
    } else if (op.kind == Kind::kManualComputation) {
      const auto& out = op.as<ManualAttrs>().out;
      found = found || std::any_of(out.begin(), out.end(), says);
    }
  });
  return found;
}

UnreducedArrays::UnreducedArrays(const Module& module) {
  if (!has_unreduced(module)) {
    return;
  }
  const Function& main = *module.main;
  walk(main.body, [&](const Op& op) {
    for (const Value* v : op.operands) {
      const bool first = user_.emplace(v, &op).second;
      user_[v] = first ? &op : nullptr;
    }
  });
  for (size_t i = 0; i < main.args.size(); ++i) {
    if (main.args[i].wanted) {
      set(main.body.args[i].get(), main.args[i].wanted->sharding.unreduced);
    }
  }
  follow(main.body);
}

const Axes& UnreducedArrays::of(const Value* v) const {
  const auto it = axes_.find(v);
  return it == axes_.end() ? kNone : it->second;
}

const Axes& UnreducedArrays::operand(const Op& op, size_t i) const {
  const auto it = linear_.find(&op);
  return it != linear_.end() && of(op.operands[i]) == it->second ? it->second : kNone;
}

void UnreducedArrays::set(const Value* v, Axes axes) {
  if (axes.empty()) {
    axes_.erase(v);
  } else {
    axes_[v] = std::move(axes);
  }
}

void UnreducedArrays::follow(const Region& region) {
  for (const auto& op : region.ops) {
    switch (op->kind) {
      case Kind::kReturn:
        break;
      case Kind::kShardingConstraint:
      case Kind::kReshard:
        set(op->result(), op->as<ShardingAttrs>().sharding.unreduced);
        break;
      case Kind::kManualComputation:
        follow(*op->regions[0]);
        for (size_t i = 0; i < op->results.size(); ++i) {
          set(op->result(i), op->as<ManualAttrs>().out[i].sharding.unreduced);
        }
        break;
      case Kind::kWhile:
        follow_loop(*op);
        break;
      case Kind::kIf:
      case Kind::kCase:
        follow_branches(*op);
        break;
      default:  // as its column `linear` says
        follow_linear(*op);
    }
  }
}

// What a loop carries is a sum of terms if it begins and goes on as such.
void UnreducedArrays::follow_loop(const Op& op) {
  std::vector<Axes> carried;
  for (const Value* v : op.operands) {
    carried.push_back(of(v));
  }
  for (bool changed = true; changed;) {
    for (size_t i = 0; i < carried.size(); ++i) {
      set(op.regions[0]->args[i].get(), carried[i]);
      set(op.regions[1]->args[i].get(), carried[i]);
      set(op.result(i), carried[i]);
    }
    follow(*op.regions[0]);
    follow(*op.regions[1]);
    changed = false;
    for (size_t i = 0; i < carried.size(); ++i) {
      if (!carried[i].empty() && of(op.regions[1]->terminator()->operands[i]) != carried[i]) {
        carried[i].clear();
        changed = true;
      }
    }
  }
}

void UnreducedArrays::follow_branches(const Op& op) {
  for (const auto& region : op.regions) {
    follow(*region);
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    const auto returned = [&](const auto& region) -> const Axes& {
      return of(region->terminator()->operands[i]);
    };
    const Axes& first = returned(op.regions[0]);
    const bool alike = std::all_of(op.regions.begin(), op.regions.end(),
                                   [&](const auto& region) { return returned(region) == first; });
    set(op.result(i), alike ? first : kNone);
  }
}

void UnreducedArrays::follow_linear(const Op& op) {
  linear_.erase(&op);
  for (const auto& result : op.results) {
    set(result.get(), {});
  }
  if (op.results.size() != 1) {
    return;
  }
  const Linear linear = linear_operands(op);
  std::vector<size_t> with_terms;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!of(op.operands[i]).empty()) {
      with_terms.push_back(i);
    }
  }
  Axes terms = with_terms.empty() ? kNone : of(op.operands[with_terms[0]]);
  const bool alike = std::all_of(with_terms.begin(), with_terms.end(),
                                 [&](size_t i) { return of(op.operands[i]) == terms; });
  const bool fits =
      linear.any_one ? with_terms.size() == 1 && with_terms[0] < 2 : with_terms == linear.operands;
  if (!terms.empty() && alike && fits) {
    linear_[&op] = terms;
  } else {
    terms.clear();
  }
  for (const int axis : demanded(op.result())) {
    const bool contracts = op.kind == Kind::kDotGeneral || op.kind == Kind::kConvolution ||
                           op.kind == Kind::kReduce || op.kind == Kind::kScatter ||
                           op.kind == Kind::kGather;
    if (contracts && !holds(terms, axis)) {
      terms.push_back(axis);
    }
  }
  std::sort(terms.begin(), terms.end());
  set(op.result(), std::move(terms));
}

const Axes& UnreducedArrays::demanded(const Value* v) const {
  const auto it = user_.find(v);
  const Op* user = it == user_.end() ? nullptr : it->second;
  if (user == nullptr) {
    return kNone;
  }
  if (user->kind == Kind::kShardingConstraint || user->kind == Kind::kReshard) {
    return user->as<ShardingAttrs>().sharding.unreduced;
  }
  return moves_elements(*user) ? demanded(user->result()) : kNone;
}

}  // namespace tpu::compiler
