// Pass `canonicalise`, rules on values and bodies: see canonicalise.hpp. The rules on shapes are in
// canonicalise_shape.cpp, those on dot_general in canonicalise_dot.cpp.
#include "passes/canonicalise.hpp"

#include <cmath>

#include "passes/canonicalise_rules.hpp"

namespace tpu::compiler {
namespace {

constexpr int kMaxRounds = 16;  // every rule shrinks or lowers the graph, so rounds are few

Value* broadcast_scalar(Value* v, const Type& like, Rewriter& rw) {
  if (v->type.dims == like.dims) {
    return v;
  }
  return rw.make(Kind::kBroadcastInDim, {v}, {v->type.elem, like.dims}, DimsAttrs{});
}

std::vector<Value*> clamp(Op& op, Rewriter& rw) {
  const Type& t = op.type();
  Value* low = broadcast_scalar(op.operands[0], t, rw);
  Value* high = broadcast_scalar(op.operands[2], t, rw);
  Value* raised = rw.make(Kind::kMaximum, {op.operands[1], low}, t);
  return {rw.make(Kind::kMinimum, {raised, high}, t)};
}

std::vector<Value*> select(Op& op, Rewriter& rw) {
  if (op.operands[1] == op.operands[2]) {
    return {op.operands[1]};
  }
  if (const Dense* predicate = splat_of(op.operands[0])) {
    return {op.operands[predicate->as_int(0) != 0 ? 1 : 2]};
  }
  if (op.operand_type(0).dims != op.type().dims) {
    Value* p = broadcast_scalar(op.operands[0], op.type(), rw);
    return {rw.make(Kind::kSelect, {p, op.operands[1], op.operands[2]}, op.type())};
  }
  return {};
}

// x / 2^k = x * 2^-k to the bit, as long as neither number is subnormal.
std::vector<Value*> divide(Op& op, Rewriter& rw) {
  const Dense* divisor = splat_of(op.operands[1]);
  if (divisor == nullptr || !is_float(op.type().elem)) {
    return {};
  }
  int exponent = 0;
  const double mantissa = std::frexp(divisor->as_double(0), &exponent);
  constexpr int kLimit = 120;
  if (std::abs(mantissa) != 0.5 || exponent > kLimit || exponent < -kLimit) {
    return {};
  }
  Value* reciprocal = rw.constant(make_splat(op.type(), 1.0 / divisor->as_double(0)));
  return {rw.make(Kind::kMultiply, {op.operands[0], reciprocal}, op.type())};
}

bool is_positive_zero(const Value* v) {
  return is_zero(v) && is_float(v->type.elem) && !std::signbit(splat_of(v)->as_double(0));
}

bool is_splat_int(const Value* v, int64_t wanted) {
  const Dense* d = splat_of(v);
  return d != nullptr && is_integer(d->type.elem) && d->as_int(0) == wanted;
}

// True if no element can be -0 or is not canonical (subnormal, other NaN bits): adding +0 changes
// nothing then.
bool is_never_negative_zero(const Value* v, int depth) {
  constexpr int kMaxSteps = 8;
  if (v->def == nullptr || depth > kMaxSteps || !is_float(v->type.elem)) {
    return false;
  }
  const Op& op = *v->def;
  switch (op.kind) {
    case Kind::kDotGeneral:  // the running sum of a column starts at +0
    case Kind::kExp:
      return true;
    case Kind::kReduce:  // sums start at +0 and end with the initial value
      return op.results.size() == 1 && simple_reducer(*op.regions[0]) == Kind::kAdd &&
             is_positive_zero(op.operands[1]);
    case Kind::kAdd:
      return is_positive_zero(op.operands[1]) || is_positive_zero(op.operands[0]);
    case Kind::kReshape:
    case Kind::kTranspose:
    case Kind::kBroadcastInDim:
    case Kind::kSlice:
      return is_never_negative_zero(op.operands[0], depth + 1);
    default:  // may be -0
      return false;
  }
}

std::vector<Value*> float_plus_zero(Op& op) {
  for (const size_t i : {0u, 1u}) {
    if (is_positive_zero(op.operands[1 - i]) && is_never_negative_zero(op.operands[i], 0)) {
      return {op.operands[i]};
    }
  }
  return {};
}

// Other floats are left alone: x + 0 and x * 1 flush subnormals and change -0 or NaN bits.
std::vector<Value*> integer_identity(Op& op) {
  const int64_t neutral = op.kind == Kind::kMultiply ? 1 : 0;
  if (is_splat_int(op.operands[1], neutral)) {
    return {op.operands[0]};
  }
  if (op.kind != Kind::kSubtract && is_splat_int(op.operands[0], neutral)) {
    return {op.operands[1]};
  }
  return {};
}

std::vector<Value*> split_collective(Op& op, Rewriter& rw) {
  if (op.operands.size() < 2) {
    return {};
  }
  std::vector<Value*> out;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Value* v = rw.make(op.kind, {op.operands[i]}, op.type(i), op.attrs);
    for (const auto& body : op.regions) {
      ValueMap map;
      clone_region(*body, *v->def, map);
    }
    out.push_back(v);
  }
  return out;
}

std::vector<Value*> reduce(Op& op, Rewriter& rw) {
  int64_t reduced = 1;
  for (const int64_t d : op.as<DimsAttrs>().dims) {
    reduced *= op.operand_type(0).dims[static_cast<size_t>(d)];
  }
  if (op.as<DimsAttrs>().dims.empty() || reduced != 1 || op.results.size() != 1) {
    return {};
  }
  const auto body = simple_reducer(*op.regions[0]);
  if (!body) {
    return {};
  }
  Value* x = op.operands[0];
  if (x->type.dims != op.type().dims) {
    x = rw.make(Kind::kReshape, {x}, op.type());
  }
  return {rw.make(*body, {x, broadcast_scalar(op.operands[1], op.type(), rw)}, op.type())};
}

// A result without elements needs no arithmetic; a view of nothing has no strides either.
std::vector<Value*> no_elements(const Op& op, Rewriter& rw) {
  const bool empty = op.kind != Kind::kConstant && op.results.size() == 1 && op.type().count() == 0;
  return empty ? std::vector<Value*>{rw.constant(make_splat(op.type(), 0))} : std::vector<Value*>{};
}

// Rules ask for the users of these alone.
bool has_asked_uses(Kind kind) {
  return kind == Kind::kDotGeneral || kind == Kind::kWhile || kind == Kind::kIf ||
         kind == Kind::kCase || kind == Kind::kOptimizationBarrier;
}

// Facts of the graph before a sweep, while all its regions are whole.
struct Facts {
  Uses uses;
  rules::Readers barred;  // of operands of barriers
  CounterRanges counters;
};

Facts facts_of(const Region& region) {
  Facts facts;
  walk(region, [&](Op& op) {
    for (const Value* v : op.operands) {
      if (v->def != nullptr && has_asked_uses(v->def->kind)) {
        facts.uses[v].push_back(&op);
      }
      if (op.kind == Kind::kOptimizationBarrier) {
        facts.barred[v] = 0;
      }
    }
  });
  if (!facts.barred.empty()) {
    walk(region, [&](const Op& op) {
      for (const Value* v : op.operands) {
        if (const auto found = facts.barred.find(v); found != facts.barred.end()) {
          ++found->second;
        }
      }
    });
  }
  facts.counters = counter_ranges(region);
  return facts;
}

std::vector<Value*> apply(Op& op, Rewriter& rw, const Facts& facts) {
  const Uses& uses = facts.uses;
  if (auto out = no_elements(op, rw); !out.empty()) {
    return out;
  }
  switch (op.kind) {
    case Kind::kConvert:
      return op.operand_type(0) == op.type() ? op.operands : std::vector<Value*>{};
    case Kind::kOptimizationBarrier:
      return rules::barrier(op, rw, uses, facts.barred);
    case Kind::kClamp:
      return clamp(op, rw);
    case Kind::kSelect:
      return select(op, rw);
    case Kind::kDivide:
      return divide(op, rw);
    case Kind::kAdd:
      return is_float(op.type().elem) ? float_plus_zero(op) : integer_identity(op);
    case Kind::kSubtract:
    case Kind::kMultiply:
      return integer_identity(op);
    case Kind::kReduce:
      return reduce(op, rw);
    case Kind::kAllReduce:
    case Kind::kAllGather:
      return split_collective(op, rw);
    case Kind::kWhile:
      return rules::while_loop(op, rw, uses);
    case Kind::kIf:
    case Kind::kCase:
      return rules::branch(op, rw, uses);
    case Kind::kDynamicSlice:
      return rules::dynamic_slice(op, rw);
    case Kind::kCompare:
      return rules::compare(op, rw, facts.counters);
    case Kind::kAnd:
    case Kind::kOr:
      return rules::truth(op);
    case Kind::kDotGeneral:
      return rules::dot_general(op, rw);
    case Kind::kTranspose: {
      auto out = rules::transpose(op, rw);
      return out.empty() ? rules::transpose_of_dot(op, rw, uses) : out;
    }
    default:  // without a rule, or a rule of shapes
      return rules::shape(op, rw);
  }
}

}  // namespace

bool canonicalise(Module& module) {
  bool any = false;
  const auto run = [&any](Region& region) {
    bool changed = true;
    for (int round = 0; changed && round < kMaxRounds; ++round) {
      const Facts facts = facts_of(region);
      Rewriter rw;
      changed = rw.run(region, [&](Op& op, Rewriter& r) { return apply(op, r, facts); });
      any = any || changed;
    }
  };
  run(module.main->body);
  for (const auto& f : module.functions) {
    run(f->body);
  }
  return any;
}

}  // namespace tpu::compiler
