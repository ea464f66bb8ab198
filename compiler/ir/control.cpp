// Free values of regions, and the counter pattern of lax.fori_loop and lax.scan.
#include "ir/control.hpp"

#include <algorithm>
#include <unordered_set>

#include "ir/comparison.hpp"

namespace tpu::compiler {

namespace {

const Dense* scalar_constant(const Value* v) {
  if (v->def == nullptr || v->def->kind != Kind::kConstant || v->type.count() != 1) {
    return nullptr;
  }
  return &v->def->as<ConstantAttrs>().value;
}

// The constant that body argument `arg` grows by every time, 0 if it does not.
int64_t step_of(const Value* arg, const Value* next) {
  if (next->def == nullptr || next->type != arg->type) {
    return 0;
  }
  const Op& op = *next->def;
  const bool minus = op.kind == Kind::kSubtract;
  if (op.kind != Kind::kAdd && !minus) {
    return 0;
  }
  for (const size_t i : {0u, 1u}) {
    const Dense* c = scalar_constant(op.operands[i]);
    if (c != nullptr && op.operands[1 - i] == arg && (!minus || i == 1)) {
      return minus ? -c->as_int(0) : c->as_int(0);
    }
  }
  return 0;
}

// Iterations until `first + n * step` no longer compares true with `limit`; -1: never, or not by
// stepping over the limit.
int64_t count_trips(CompareDirection direction, int64_t first, int64_t step, int64_t limit) {
  int64_t distance = 0;  // to the first value that ends the loop, in the direction of the step
  switch (direction) {
    case CompareDirection::kLt:
    case CompareDirection::kLe:
      distance = limit - first + (direction == CompareDirection::kLe ? 1 : 0);
      break;
    case CompareDirection::kGt:
    case CompareDirection::kGe:
      distance = first - limit + (direction == CompareDirection::kGe ? 1 : 0);
      step = -step;
      break;
    case CompareDirection::kNe:
      distance = limit - first;
      if (step < 0) {
        distance = -distance;
        step = -step;
      }
      if (distance < 0 || distance % step != 0) {
        return -1;
      }
      break;
    default:
      return -1;
  }
  if (distance <= 0) {
    return 0;
  }
  return step > 0 ? (distance + step - 1) / step : -1;
}

}  // namespace

std::vector<Value*> free_values(const Op& op) {
  std::unordered_set<const Value*> inside, seen;
  const auto add_args = [&](const Op& o) {
    for (const auto& r : o.regions) {
      for (const auto& a : r->args) {
        inside.insert(a.get());
      }
    }
  };
  std::vector<Value*> out;
  add_args(op);
  for (const auto& r : op.regions) {
    walk(*r, [&](Op& o) {
      for (const auto& v : o.results) {
        inside.insert(v.get());
      }
      add_args(o);
    });
  }
  for (const auto& r : op.regions) {
    walk(*r, [&](Op& o) {
      for (Value* v : o.operands) {
        if (!inside.contains(v) && seen.insert(v).second) {
          out.push_back(v);
        }
      }
    });
  }
  return out;
}

std::vector<Value*> dependencies(const Op& op) {
  std::vector<Value*> out = op.operands;
  if (!op.regions.empty()) {
    const std::vector<Value*> free = free_values(op);
    out.insert(out.end(), free.begin(), free.end());
  }
  return out;
}

bool is_carried(const Value& v) {
  const Region* owner = v.owner;
  return v.def == nullptr && owner != nullptr && owner->parent != nullptr &&
         owner->parent->kind == Kind::kWhile && owner == owner->parent->regions[1].get();
}

bool has_effects(const Region& region) {
  return std::any_of(region.ops.begin(), region.ops.end(), [](const auto& op) {
    return op->kind != Kind::kReturn && has_side_effect(*op);
  });
}

std::optional<CountedLoop> counted_loop(const Op& op) {
  if (op.kind != Kind::kWhile) {
    return std::nullopt;
  }
  const Region &cond = *op.regions.at(0), &body = *op.regions.at(1);
  if (has_effects(cond)) {  // it has to run, so that knowing the count helps nobody
    return std::nullopt;
  }
  const Op *test = cond.terminator(), *ret = body.terminator();
  const Op* compare = test->operands.at(0)->def;
  if (compare == nullptr || compare->kind != Kind::kCompare) {
    return std::nullopt;
  }
  CompareDirection direction = compare->as<CompareAttrs>().direction;
  const Value* counter = compare->operands[0];
  const Dense* limit = scalar_constant(compare->operands[1]);
  if (limit == nullptr) {
    counter = compare->operands[1];
    limit = scalar_constant(compare->operands[0]);
    direction = mirrored(direction);
  }
  if (limit == nullptr || counter->owner != &cond || !counter->type.is_scalar() ||
      (counter->type.elem != Elem::kI32 && counter->type.elem != Elem::kU32)) {
    return std::nullopt;
  }
  CountedLoop out;
  out.index = static_cast<size_t>(counter->index);
  const Dense* first = scalar_constant(op.operands[out.index]);
  out.step = step_of(body.args[out.index].get(), ret->operands[out.index]);
  if (first == nullptr || out.step == 0) {
    return std::nullopt;
  }
  const bool is_unsigned = counter->type.elem == Elem::kU32;
  const auto value = [&](const Dense* d) {
    return is_unsigned ? d->as_int(0) & 0xffffffff : d->as_int(0);
  };
  out.step = static_cast<int32_t>(out.step);  // adding 2^32 - 1 is a step back
  out.first = value(first);
  out.trips = count_trips(direction, out.first, out.step, value(limit));
  // The counter must not wrap around before the loop ends.
  const int64_t lowest = is_unsigned ? 0 : INT32_MIN,
                highest = is_unsigned ? UINT32_MAX : INT32_MAX;
  if (out.trips < 0 || out.last() < lowest || out.last() > highest) {
    return std::nullopt;
  }
  return out;
}

namespace {

using Range = std::optional<IntRange>;

constexpr int kMaxRangeDepth = 12;

// Nothing if the value may wrap around in its type.
Range inside(const Type& type, IntRange r) {
  switch (type.elem) {
    case Elem::kI32:
      return r.low >= INT32_MIN && r.high <= INT32_MAX ? Range(r) : std::nullopt;
    case Elem::kU32:
      return r.low >= 0 && r.high <= UINT32_MAX ? Range(r) : std::nullopt;
    default:
      return std::nullopt;
  }
}

Range product(const IntRange& a, const IntRange& b) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (const int64_t x : {a.low, a.high, b.low, b.high}) {
    if (x > kLimit || x < -kLimit) {
      return std::nullopt;
    }
  }
  const auto [low, high] =
      std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  return IntRange{low, high};
}

Range combined(Kind kind, const IntRange& a, const IntRange& b) {
  switch (kind) {
    case Kind::kAdd:
      return IntRange{a.low + b.low, a.high + b.high};
    case Kind::kSubtract:
      return IntRange{a.low - b.high, a.high - b.low};
    case Kind::kMultiply:
      return product(a, b);
    case Kind::kMinimum:
      return IntRange{std::min(a.low, b.low), std::min(a.high, b.high)};
    case Kind::kMaximum:
      return IntRange{std::max(a.low, b.low), std::max(a.high, b.high)};
    case Kind::kRemainder:
      if (a.low < 0 || b.low <= 0) {
        return std::nullopt;
      }
      return IntRange{0, std::min(a.high, b.high - 1)};
    default:  // no range is known
      return std::nullopt;
  }
}

Range range_at(const Value* v, const CounterRanges& counters, int depth) {
  if (depth > kMaxRangeDepth || v->type.count() != 1 || !is_integer(v->type.elem)) {
    return std::nullopt;
  }
  if (v->def == nullptr) {
    const auto it = counters.find(v);
    return it == counters.end() ? std::nullopt : Range(it->second);
  }
  const Op& op = *v->def;
  if (const Dense* c = scalar_constant(v)) {
    return inside(v->type, {c->as_int(0), c->as_int(0)});
  }
  if (op.kind == Kind::kReshape || op.kind == Kind::kBroadcastInDim || op.kind == Kind::kConvert) {
    const Range r = range_at(op.operands[0], counters, depth + 1);
    return r ? inside(v->type, *r) : r;
  }
  if (op.kind == Kind::kSelect) {
    const Range a = range_at(op.operands[1], counters, depth + 1),
                b = range_at(op.operands[2], counters, depth + 1);
    return a && b ? Range(IntRange{std::min(a->low, b->low), std::max(a->high, b->high)})
                  : std::nullopt;
  }
  if (op.operands.size() != 2 || !is_elementwise(op.kind)) {
    return std::nullopt;
  }
  const Range a = range_at(op.operands[0], counters, depth + 1);
  const Range b = a ? range_at(op.operands[1], counters, depth + 1) : std::nullopt;
  const Range r = b ? combined(op.kind, *a, *b) : std::nullopt;
  return r ? inside(v->type, *r) : r;
}

}  // namespace

CounterRanges counter_ranges(const Region& region) {
  CounterRanges out;
  walk(region, [&](const Op& op) {
    const auto loop = counted_loop(op);
    if (loop && loop->trips > 0) {
      const int64_t end = loop->last() - loop->step;
      out[op.regions[1]->args[loop->index].get()] = {std::min(loop->first, end),
                                                     std::max(loop->first, end)};
    }
  });
  return out;
}

std::optional<IntRange> range_of(const Value* v, const CounterRanges& counters) {
  return range_at(v, counters, 0);
}

}  // namespace tpu::compiler
