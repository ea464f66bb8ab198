// See wide_halves.hpp.
#include "legalize/int64/wide_halves.hpp"

namespace tpu::compiler {

namespace {

std::optional<Kind> bit_operation(const Region& body) {
  const auto kind = simple_reducer(body);
  const bool bits = kind == Kind::kAnd || kind == Kind::kOr || kind == Kind::kXor;
  return bits ? kind : std::nullopt;
}

// The widest digits of which `count` have a sum below 2^32.
int digit_bits(int64_t count) {
  int bits = 16;
  while (bits > 1 && static_cast<uint64_t>(count) * ((1u << bits) - 1) > UINT32_MAX) {
    --bits;
  }
  return bits;
}

Wide sum_of(const Wide& x, const Dims& dims, Rewriter& rw) {
  Builder b(rw);
  WideMath math(rw);
  int64_t count = 1;
  for (const int64_t d : dims) {
    count *= x.lo->type.dims[static_cast<size_t>(d)];
  }
  const int bits = digit_bits(count);
  Value* none = b.splat_int({Elem::kU32, {}}, 0);
  const auto sum = [&](Value* v) { return b.reduce(Kind::kAdd, v, none, dims); };
  Wide total{none, sum(x.hi)};
  for (int at = 0; at < 32; at += bits) {
    Value* digit = x.lo;
    if (at > 0) {
      digit = b.binary(Kind::kShiftRightLogical, digit, b.splat_int(digit->type, at));
    }
    if (at + bits < 32) {
      digit = b.logical_and(digit, b.splat_int(digit->type, (1 << bits) - 1));
    }
    Value* s = sum(digit);
    Value* zero = b.zeros_like(s);
    if (at == 0) {
      total.lo = s;
      continue;
    }
    const Wide amount = math.constant(s->type.dims, static_cast<uint64_t>(at));
    total = math.add(total, math.shift(Kind::kShiftLeft, {s, zero}, amount));
  }
  return total;
}

}  // namespace

std::optional<Wide> reduce_by_halves(const Op& op, const Wide& x, const Wide& init, Rewriter& rw) {
  Builder b(rw);
  const Dims& dims = op.as<DimsAttrs>().dims;
  if (simple_reducer(*op.regions[0]) == Kind::kAdd) {
    const Dims& out = op.type().dims;
    const Wide start = {b.broadcast_scalar(init.lo, out), b.broadcast_scalar(init.hi, out)};
    return WideMath(rw).add(sum_of(x, dims, rw), start);
  }
  const auto kind = bit_operation(*op.regions[0]);
  if (!kind) {
    return std::nullopt;
  }
  return Wide{b.reduce(*kind, x.lo, init.lo, dims), b.reduce(*kind, x.hi, init.hi, dims)};
}

std::optional<Wide> scatter_by_halves(const Op& op, const Wide& x,
                                      const std::function<Value*()>& places, const Wide& updates,
                                      Rewriter& rw) {
  const Region& body = *op.regions[0];
  const auto kind = bit_operation(body);
  if (!kind && body.terminator()->operands[0] != body.args.back().get()) {
    return std::nullopt;
  }
  Value* at = places();
  const auto half = [&](Value* target, Value* update) {
    Value* v = rw.make(Kind::kScatter, {target, at, update}, target->type, op.attrs);
    Region* region = v->def->add_region();
    const Type scalar{Elem::kU32, {}};
    Value* old = region->add_arg(scalar);
    Value* made = region->add_arg(scalar);
    if (kind) {
      made = region->append(*kind, {old, made}, {scalar}, NoAttrs{}, op.loc)->result();
    }
    region->append(Kind::kReturn, {made}, {}, NoAttrs{}, op.loc);
    return v;
  };
  return Wide{half(x.lo, updates.lo), half(x.hi, updates.hi)};
}

}  // namespace tpu::compiler
