// Rules of the pass `canonicalise` on while, if, case and dynamic slices. No op leaves the region
// that it stands in, except those of a branch that is known to be taken.
//   before   while (a = x, b = y) cond(b) { return a, f(a, b) }
//   after    while (b = y) cond(b) { return f(x, b) }
#include <algorithm>
#include <unordered_set>

#include "ir/control.hpp"
#include "passes/canonicalise_rules.hpp"

namespace tpu::compiler::rules {

namespace {

using Live = std::unordered_set<const Value*>;

// Adds to `live` everything in the region that is needed for what is in it.
void trace_back(const Region& region, Live& live) {
  for (auto it = region.ops.rbegin(); it != region.ops.rend(); ++it) {
    const Op& op = **it;
    const bool used = std::any_of(op.results.begin(), op.results.end(),
                                  [&](const auto& r) { return live.contains(r.get()); });
    if (op.kind != Kind::kReturn && (used || has_side_effect(op))) {
      const std::vector<Value*> in = dependencies(op);
      live.insert(in.begin(), in.end());
    }
  }
}

// Which carried values matter: for the condition, for a result that is used, or for another one
// that matters.
std::vector<bool> live_carried(const Op& op, const Uses& uses) {
  const Region &cond = *op.regions[0], &body = *op.regions[1];
  const size_t n = op.operands.size();
  std::vector<bool> out(n);
  Live needed{cond.terminator()->operands[0]};
  trace_back(cond, needed);
  for (size_t i = 0; i < n; ++i) {
    out[i] = needed.contains(cond.args[i].get()) || uses.contains(op.result(i));
  }
  for (bool changed = true; changed;) {
    changed = false;
    Live live;
    for (size_t i = 0; i < n; ++i) {
      if (out[i]) {
        live.insert(body.terminator()->operands[i]);
      }
    }
    trace_back(body, live);
    for (size_t i = 0; i < n; ++i) {
      if (!out[i] && live.contains(body.args[i].get())) {
        out[i] = changed = true;
      }
    }
  }
  return out;
}

template <typename T>
void keep(std::vector<T>& list, const std::vector<bool>& kept) {
  size_t to = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (kept[i]) {
      if (to != i) {
        list[to] = std::move(list[i]);
      }
      ++to;
    }
  }
  list.resize(to);
}

void keep_args(Region& region, const std::vector<bool>& kept) {
  keep(region.args, kept);
  for (size_t i = 0; i < region.args.size(); ++i) {
    region.args[i]->index = static_cast<int>(i);
  }
}

// The op again with some of its results and the same regions.
Op* rebuilt(Op& op, std::vector<Value*> operands, const std::vector<bool>& kept, Rewriter& rw) {
  std::vector<Type> types;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) {
      types.push_back(op.type(i));
    }
  }
  Op* made = rw.make_op(op.kind, std::move(operands), std::move(types), op.attrs);
  made->regions = std::move(op.regions);
  for (const auto& r : made->regions) {
    r->parent = made;
    keep(r->terminator()->operands, kept);
  }
  return made;
}

// Takes the ops of a region to the place of its op; the values that it returns.
std::vector<Value*> taken(const Region& region, Rewriter& rw) {
  ValueMap map;
  for (const auto& op : region.ops) {
    if (op->kind != Kind::kReturn) {
      clone_op(*op, rw.region(), map);
    }
  }
  return mapped(region.terminator()->operands, map);
}

}  // namespace

namespace {

bool same_constant(const Value* a, const Value* b) {
  const Dense *x = constant_of(a), *y = constant_of(b);
  return x != nullptr && y != nullptr && x->type == y->type && x->type.is_scalar() &&
         x->as_int(0) == y->as_int(0);
}

// True if carried value `j` starts and steps as the counter `c` does: lax.fori_loop carries the
// index of its body beside the counter of its loop.
bool follows(const Op& op, size_t j, size_t c) {
  const Region& body = *op.regions[1];
  const Op *mine = body.terminator()->operands[j]->def, *its = body.terminator()->operands[c]->def;
  if (j == c || op.type(j) != op.type(c) || !same_constant(op.operands[j], op.operands[c]) ||
      mine == nullptr || its == nullptr || mine->kind != Kind::kAdd || its->kind != Kind::kAdd) {
    return false;
  }
  const auto steps = [&](const Op& add, size_t arg) {
    const Value* a = body.args[arg].get();
    return add.operands[0] == a   ? add.operands[1]
           : add.operands[1] == a ? add.operands[0]
                                  : nullptr;
  };
  const Value *my_step = steps(*mine, j), *its_step = steps(*its, c);
  return my_step != nullptr && its_step != nullptr && same_constant(my_step, its_step);
}

}  // namespace

std::vector<Value*> while_loop(Op& op, Rewriter& rw, const Uses& uses) {
  const auto counted = counted_loop(op);
  if (counted && counted->trips == 0) {
    return op.operands;
  }
  Region &cond = *op.regions[0], &body = *op.regions[1];
  const size_t n = op.operands.size();
  const std::vector<bool> live = live_carried(op, uses);
  std::vector<Value*> values(n, nullptr);
  std::vector<bool> kept(n, true);
  ValueMap known_as;
  for (size_t i = 0; i < n; ++i) {
    Value* init = op.operands[i];
    const bool same = body.terminator()->operands[i] == body.args[i].get();
    if (same || !live[i]) {
      kept[i] = false;
      values[i] = init;
      known_as[body.args[i].get()] = init;
      known_as[cond.args[i].get()] = init;
    } else if (counted && follows(op, i, counted->index)) {
      kept[i] = false;
      values[i] = rw.constant(make_splat_int(op.type(i), counted->last()));
      known_as[body.args[i].get()] = body.args[counted->index].get();
      known_as[cond.args[i].get()] = cond.args[counted->index].get();
    }
  }
  const bool known = counted && uses.contains(op.result(counted->index));
  if (std::all_of(kept.begin(), kept.end(), [](bool k) { return k; }) && !known) {
    return {};
  }
  replace_all_uses(cond, known_as);
  replace_all_uses(body, known_as);
  std::vector<Value*> operands = op.operands;
  keep(operands, kept);
  // The condition returns one value, whatever is carried.
  Value* test = cond.terminator()->operands[0];
  Op* made = rebuilt(op, std::move(operands), kept, rw);
  made->regions[0]->terminator()->operands = {test};
  for (const auto& r : made->regions) {
    keep_args(*r, kept);
  }
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    if (kept[i]) {
      values[i] = made->result(at++);
    }
  }
  if (known) {
    values[counted->index] =
        rw.constant(make_splat_int(values[counted->index]->type, counted->last()));
  }
  return values;
}

std::vector<Value*> branch(Op& op, Rewriter& rw, const Uses& uses) {
  if (const Dense* c = constant_of(op.operands[0]); c != nullptr) {
    const int64_t v = c->as_int(0), last = static_cast<int64_t>(op.regions.size()) - 1;
    const int64_t r = op.kind == Kind::kIf ? (v != 0 ? 0 : 1) : (v < 0 || v > last ? last : v);
    return taken(*op.regions[static_cast<size_t>(r)], rw);
  }
  if (op.regions.size() == 1) {
    return taken(*op.regions[0], rw);
  }
  const size_t n = op.results.size();
  std::vector<bool> kept(n);
  std::vector<Value*> values(n, nullptr);
  for (size_t i = 0; i < n; ++i) {
    Value* v = op.regions[0]->terminator()->operands[i];
    const auto same = [&](const auto& r) { return r->terminator()->operands[i] == v; };
    const bool outside = v->def == nullptr || v->def->parent != op.regions[0].get();
    const bool all = outside && std::all_of(op.regions.begin(), op.regions.end(), same);
    kept[i] = !all && uses.contains(op.result(i));
    values[i] = all ? v : nullptr;
  }
  if (std::all_of(kept.begin(), kept.end(), [](bool k) { return k; })) {
    return {};
  }
  const Op* made = rebuilt(op, op.operands, kept, rw);
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    if (kept[i]) {
      values[i] = made->result(at++);
    } else if (values[i] == nullptr) {
      values[i] = op.operands[0];  // nobody asks
    }
  }
  return values;
}

// Comparisons of counters that come out one way only, as those that make an index count from the
// end where it is negative.
std::vector<Value*> compare(Op& op, Rewriter& rw, const CounterRanges& counters) {
  if (!op.type().is_scalar() || !is_integer(op.operand_type(0).elem)) {
    return {};
  }
  const auto a = range_of(op.operands[0], counters);
  const auto b = a ? range_of(op.operands[1], counters) : std::nullopt;
  if (!b) {
    return {};
  }
  const auto decided = [&](bool always, bool never) {
    return always || never
               ? std::vector<Value*>{rw.constant(make_splat_int(op.type(), always ? 1 : 0))}
               : std::vector<Value*>{};
  };
  const bool apart = a->high < b->low || b->high < a->low;
  const bool same = a->low == a->high && b->low == b->high && a->low == b->low;
  switch (op.as<CompareAttrs>().direction) {
    case CompareDirection::kLt:
      return decided(a->high < b->low, a->low >= b->high);
    case CompareDirection::kLe:
      return decided(a->high <= b->low, a->low > b->high);
    case CompareDirection::kGt:
      return decided(a->low > b->high, a->high <= b->low);
    case CompareDirection::kGe:
      return decided(a->low >= b->high, a->high < b->low);
    case CompareDirection::kEq:
      return decided(same, apart);
    default:
      return decided(apart, same);
  }
}

// and, or of truth values with a constant.
std::vector<Value*> truth(Op& op) {
  for (const size_t i : {0u, 1u}) {
    const Dense* c = splat_of(op.operands[i]);
    if (op.type().elem == Elem::kI1 && c != nullptr) {
      const bool decides = (c->as_int(0) != 0) == (op.kind == Kind::kOr);
      return {op.operands[decides ? i : 1 - i]};
    }
  }
  return {};
}

// Constant starts: a slice, clamped as the op says.
std::vector<Value*> dynamic_slice(Op& op, Rewriter& rw) {
  const Dims &from = op.operand_type(0).dims, &sizes = op.as<DimsAttrs>().dims;
  SliceAttrs a;
  for (size_t d = 0; d < from.size(); ++d) {
    const Dense* c = constant_of(op.operands[1 + d]);
    if (c == nullptr && sizes[d] != from[d]) {
      return {};
    }
    const int64_t start = c == nullptr ? 0 : c->as_int(0);
    const bool huge = c != nullptr && c->type.elem == Elem::kU64 && start < 0;
    const int64_t limit = from[d] - sizes[d];
    a.start.push_back(huge ? limit : std::clamp<int64_t>(start, 0, limit));
    a.limit.push_back(a.start.back() + sizes[d]);
    a.stride.push_back(1);
  }
  return {rw.make(Kind::kSlice, {op.operands[0]}, op.type(), a)};
}

}  // namespace tpu::compiler::rules
