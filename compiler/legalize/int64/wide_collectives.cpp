// See wide_collectives.hpp.
#include "legalize/int64/wide_collectives.hpp"

#include <array>

namespace tpu::compiler {

namespace {

// Over cores the halves cannot be combined as pairs, so sums travel as four 16-bit digits (no
// digit overflows below 65,536 cores), extremes as the high half and then the low half of those
// that hold it.
class CoreReduction {
 public:
  CoreReduction(const Op& op, const Wide& x, Rewriter& rw)
      : op_(op), x_(x), rw_(rw), b_(rw), math_(rw) {}

  Wide run() {
    const Kind body = simple_reducer(*op_.regions[0]).value();
    switch (body) {
      case Kind::kAdd:
        return sum();
      case Kind::kMaximum:
      case Kind::kMinimum:
        return extreme(body);
      default:
        return {over_cores(body, x_.lo), over_cores(body, x_.hi)};
    }
  }

 private:
  Value* over_cores(Kind body, Value* x) {
    Value* v = rw_.make(op_.kind, {x}, {x->type.elem, op_.type().dims}, op_.attrs);
    Region* region = v->def->add_region();
    const Type scalar{x->type.elem, {}};
    Value* a = region->add_arg(scalar);
    Value* b = region->add_arg(scalar);
    Value* r = region->append(body, {a, b}, {scalar}, NoAttrs{}, op_.loc)->result();
    region->append(Kind::kReturn, {r}, {}, NoAttrs{}, op_.loc);
    return v;
  }

  Wide sum() {
    const auto digit = [&](Value* half, bool upper) {
      Value* sixteen = b_.splat_int(half->type, 16);
      Value* d = upper ? b_.binary(Kind::kShiftRightLogical, half, sixteen)
                       : b_.logical_and(half, b_.splat_int(half->type, 0xffff));
      return over_cores(Kind::kAdd, d);
    };
    std::array<Value*, 4> sum = {digit(x_.lo, false), digit(x_.lo, true), digit(x_.hi, false),
                                 digit(x_.hi, true)};
    Value* zero = b_.zeros_like(sum[0]);
    const auto at = [&](Value* d, uint64_t bits) {
      return math_.shift(Kind::kShiftLeft, {d, zero}, math_.constant(zero->type.dims, bits));
    };
    Wide out{sum[0], zero};
    for (size_t i = 1; i < sum.size(); ++i) {
      out = math_.add(out, at(sum[i], 16 * i));
    }
    return out;
  }

  Wide extreme(Kind body) {
    const bool is_signed = op_.type().elem == Elem::kI64;
    Value* top = is_signed ? b_.convert(x_.hi, Elem::kI32) : x_.hi;
    Value* best = over_cores(body, top);
    Value* holds = b_.compare(CompareDirection::kEq, top, best);
    Value* others = b_.splat_int(x_.lo->type, body == Kind::kMaximum ? 0 : 0xffffffff);
    Value* lo = over_cores(body, b_.select(holds, x_.lo, others));
    return {lo, b_.convert(best, Elem::kU32)};
  }

  const Op& op_;
  const Wide& x_;
  Rewriter& rw_;
  Builder b_;
  WideMath math_;
};

}  // namespace

bool reduces_by_halves(const Op& op) {
  switch (simple_reducer(*op.regions[0]).value_or(Kind::kReturn)) {
    case Kind::kAdd:
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kXor:
      return true;
    case Kind::kMaximum:
    case Kind::kMinimum:  // a half of a part is told from another by the whole array
      return op.kind == Kind::kAllReduce;
    default:
      return false;
  }
}

Wide reduce_over_cores(const Op& op, const Wide& x, Rewriter& rw) {
  return CoreReduction(op, x, rw).run();
}

}  // namespace tpu::compiler
