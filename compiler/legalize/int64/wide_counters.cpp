// Loop counters of 64 bits that stay within i32 become i32: code generation counts those without
// arrays. Other uses of the counter see it converted back.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "legalize/int64/split_wide.hpp"
#include "passes/rewriter.hpp"

namespace tpu::compiler {

namespace {

std::optional<int64_t> scalar_constant(const Value* v) {
  const Dense* d = constant_of(v);
  return d != nullptr && v->type.is_scalar() && is_integer(v->type.elem)
             ? std::optional<int64_t>(d->as_int(0))
             : std::nullopt;
}

struct Counter {
  size_t at = 0;  // among the loop's operands
  int64_t start = 0, limit = 0, step = 0;
};

constexpr int64_t kLargest = INT32_MAX / 2;  // limit and step: no sum of theirs leaves i32

// while (i < limit) { ..; i = i + step } with constants.
std::optional<Counter> counter_of(const Op& loop) {
  const Region& condition = *loop.regions[0];
  const Region& body = *loop.regions[1];
  const Op* test = condition.terminator()->operands.at(0)->def;
  if (test == nullptr || test->kind != Kind::kCompare ||
      test->as<CompareAttrs>().direction != CompareDirection::kLt) {
    return std::nullopt;
  }
  const Value* i = test->operands[0];
  const auto limit = scalar_constant(test->operands[1]);
  if (i->owner != &condition || !limit || elem_bytes(i->type.elem) != 8) {
    return std::nullopt;
  }
  const auto at = static_cast<size_t>(i->index);
  const Op* next = body.terminator()->operands.at(at)->def;
  const auto start = scalar_constant(loop.operands.at(at));
  if (!start || next == nullptr || next->kind != Kind::kAdd) {
    return std::nullopt;
  }
  const Value* own = body.args.at(at).get();
  const size_t other = next->operands[0] == own ? 1 : 0;
  const auto step = scalar_constant(next->operands[other]);
  if (next->operands[1 - other] != own || !step || *step < 1 || *step > kLargest || *start < 0 ||
      *start > kLargest || *limit < 0 || *limit > kLargest) {
    return std::nullopt;
  }
  return Counter{at, *start, *limit, *step};
}

const Type kCount{Elem::kI32, {}};

Value* number(Region& r, int64_t value, const LocRef& loc) {
  return r.append(Kind::kConstant, {}, {kCount}, ConstantAttrs{make_splat_int(kCount, value)}, loc)
      ->result();
}

// `v` becomes i32; all its uses in `r` see it converted to what it was. New ops go to place
// `front`.
void retype(Region& r, Value* v, size_t front, const LocRef& loc) {
  const Type old = v->type;
  v->type = kCount;
  Op* back = r.append(Kind::kConvert, {v}, {old}, NoAttrs{}, loc);
  replace_all_uses(r, v, back->result());
  back->operands[0] = v;
  std::rotate(r.ops.begin() + static_cast<ptrdiff_t>(front), r.ops.end() - 1, r.ops.end());
}

// Ops made behind the return of `r` move in front of it.
void before_return(Region& r, size_t count) {
  std::rotate(r.ops.end() - static_cast<ptrdiff_t>(count) - 1,
              r.ops.end() - static_cast<ptrdiff_t>(count), r.ops.end());
}

void narrow(Op& loop, const Counter& c, Region& outer, size_t place) {
  const LocRef& loc = loop.loc;
  Region& condition = *loop.regions[0];
  Value* i = condition.args[c.at].get();
  retype(condition, i, 0, loc);
  Value* limit = number(condition, c.limit, loc);
  Value* more = condition
                    .append(Kind::kCompare, {i, limit}, {{Elem::kI1, {}}},
                            CompareAttrs{CompareDirection::kLt, CompareType::kSigned}, loc)
                    ->result();
  before_return(condition, 2);
  condition.terminator()->operands[0] = more;

  Region& body = *loop.regions[1];
  i = body.args[c.at].get();
  retype(body, i, 0, loc);
  Value* step = number(body, c.step, loc);
  Value* next = body.append(Kind::kAdd, {i, step}, {kCount}, NoAttrs{}, loc)->result();
  before_return(body, 2);
  body.terminator()->operands[c.at] = next;

  retype(outer, loop.result(c.at), place + 1, loc);
  loop.operands[c.at] = number(outer, c.start, loc);
  std::rotate(outer.ops.begin() + static_cast<ptrdiff_t>(place), outer.ops.end() - 1,
              outer.ops.end());
}

void visit(Region& r, bool& any) {
  for (size_t at = 0; at < r.ops.size(); ++at) {
    Op& op = *r.ops[at];
    for (const auto& inner : op.regions) {
      visit(*inner, any);
    }
    if (op.kind != Kind::kWhile) {
      continue;
    }
    if (const auto counter = counter_of(op)) {
      narrow(op, *counter, r, at);
      any = true;
      ++at;  // the constant in front
    }
  }
}

}  // namespace

bool narrow_counters(Module& module) {
  bool any = false;
  visit(module.main->body, any);
  return any;
}

}  // namespace tpu::compiler
