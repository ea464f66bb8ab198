// See wide_collectives.hpp.
#include "legalize/int64/wide_collectives.hpp"

#include <algorithm>

namespace tpu::compiler {

namespace {

constexpr size_t kMostAdded = 16;  // cores, by the digits of CoreReduction

// Over cores the halves cannot be combined as pairs. Extremes travel as the high half and then the
// low half of those that hold it. Sums travel as low words, high words and what tells the carries
// of the low words: their top four bits, packed as digits of eight for four elements in a word.
//   sum(lo) = 2^28 * t + r, t the sum of the top digits, r that of the rests
//   r < 16 * 2^28 for up to 16 cores, so r = (sum(lo) - 2^28 * t) mod 2^32
//   carry = sum(lo) div 2^32 = t div 16 + (sum(lo) mod 2^32 < r)
class CoreReduction {
  static constexpr int64_t kTopAt = 28;     // of the bits that tell the carries
  static constexpr int64_t kDigitBits = 8;  // for the sum of 16 of them
  static constexpr int64_t kDigits = 4;     // in a word

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
      case Kind::kAnd:
      case Kind::kOr:
      case Kind::kXor:
        return {over_cores(body, x_.lo), over_cores(body, x_.hi)};
      default:
        fail_unknown_kind(op_, "the reduction of 64-bit integers over cores");
    }
  }

 private:
  Value* over_cores(Kind body, Value* x) {
    return over_cores(body, x, op_.type().dims, op_.as<CollectiveAttrs>());
  }
  Value* over_cores(Kind body, Value* x, const Dims& dims, const CollectiveAttrs& attrs) {
    Value* v = rw_.make(op_.kind, {x}, {x->type.elem, dims}, attrs);
    Region* region = v->def->add_region();
    const Type scalar{x->type.elem, {}};
    Value* a = region->add_arg(scalar);
    Value* b = region->add_arg(scalar);
    Value* r = region->append(body, {a, b}, {scalar}, NoAttrs{}, op_.loc)->result();
    region->append(Kind::kReturn, {r}, {}, NoAttrs{}, op_.loc);
    return v;
  }

  Wide sum() {
    Value* lo = over_cores(Kind::kAdd, x_.lo);
    Value* hi = over_cores(Kind::kAdd, x_.hi);
    Value* tops = sum_of_tops();
    Value* rest = b_.sub(lo, shifted(Kind::kShiftLeft, tops, kTopAt));
    // One by one: in which order arguments of a call are evaluated depends on the compiler.
    Value* borrow = b_.convert(b_.compare(CompareDirection::kLt, lo, rest), Elem::kU32);
    Value* carry = b_.add(shifted(Kind::kShiftRightLogical, tops, 32 - kTopAt), borrow);
    return {lo, b_.add(hi, carry)};
  }

  // Over the elements that a core keeps, [outer, parts, kept]: all of them, or one of `parts` in
  // the scattered dimension.
  Value* sum_of_tops() {
    CollectiveAttrs attrs = op_.as<CollectiveAttrs>();
    const Dims& out = op_.type().dims;
    Dims shape{1, 1, 1};
    for (size_t d = 0; d < out.size(); ++d) {
      const bool inner = op_.kind == Kind::kAllReduce || static_cast<int64_t>(d) >= attrs.dim;
      shape[inner ? 2 : 0] *= out[d];
    }
    if (op_.kind == Kind::kReduceScatter && op_.type().count() > 0) {
      shape[1] = x_.lo->type.count() / op_.type().count();
    }
    attrs.dim = 1;
    const int64_t kept = shape[2], words = (kept + kDigits - 1) / kDigits;
    Value* top = b_.reshape(shifted(Kind::kShiftRightLogical, x_.lo, kTopAt), shape);
    top = b_.pad(top, b_.splat_int({Elem::kU32, {}}, 0), {0, 0, 0}, {0, 0, kDigits * words - kept});
    Value* packed = nullptr;
    for (int64_t i = 0; i < kDigits; ++i) {
      Value* digit = shifted(Kind::kShiftLeft, b_.slice_dim(top, 2, i * words, (i + 1) * words),
                             kDigitBits * i);
      packed = packed == nullptr ? digit : b_.logical_or(packed, digit);
    }
    packed = over_cores(Kind::kAdd, packed, {shape[0], 1, words}, attrs);
    std::vector<Value*> digits;
    for (int64_t i = 0; i < kDigits; ++i) {
      Value* digit = shifted(Kind::kShiftRightLogical, packed, kDigitBits * i);
      digits.push_back(b_.logical_and(digit, b_.splat_int(digit->type, (1 << kDigitBits) - 1)));
    }
    return b_.reshape(b_.slice_dim(b_.concatenate(digits, 2), 2, 0, kept), out);
  }

  Value* shifted(Kind kind, Value* x, int64_t by) {
    return by == 0 ? x : b_.binary(kind, x, b_.splat_int(x->type, by));
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
  const std::optional<Kind> reducer = simple_reducer(*op.regions[0]);
  if (!reducer) {
    return false;
  }
  switch (*reducer) {
    case Kind::kAdd: {
      const auto& groups = op.as<CollectiveAttrs>().groups;
      return std::all_of(groups.begin(), groups.end(),
                         [](const auto& group) { return group.size() <= kMostAdded; });
    }
    case Kind::kAnd:
    case Kind::kOr:
    case Kind::kXor:
      return true;
    case Kind::kMaximum:
    case Kind::kMinimum:  // a half of a part is told from another by the whole array
      return op.kind == Kind::kAllReduce;
    case Kind::kMultiply:
      return false;
    default:
      fail_unknown_kind(op, "the choice of 64-bit reductions over cores");
  }
}

Wide reduce_over_cores(const Op& op, const Wide& x, Rewriter& rw) {
  return CoreReduction(op, x, rw).run();
}

}  // namespace tpu::compiler
