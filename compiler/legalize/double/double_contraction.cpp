// See double_contraction.hpp.
#include "legalize/double/double_contraction.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tpu::compiler {

namespace {

constexpr int kKeptBits = 54;  // of the largest number
// Cycles of the vector unit as products: of cutting one element, and of all the rest.
constexpr int64_t kPerElement = 7, kForAll = 75'000;

size_t dim_at(int64_t d) { return static_cast<size_t>(d); }
bool has_dim(const Dims& dims, int64_t d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

Dims behind_stack(Dims dims) {
  for (int64_t& d : dims) {
    ++d;
  }
  return dims;
}

// Terms of one sum.
int64_t terms_of(const Op& op) {
  int64_t terms = 1;
  if (op.kind == Kind::kConvolution) {
    const int64_t features = op.as<ConvAttrs>().kernel_output_feature;
    return op.operand_type(1).count() /
           std::max<int64_t>(op.operand_type(1).dims[dim_at(features)], 1);
  }
  for (const int64_t d : op.as<DotAttrs>().lhs_contract) {
    terms *= op.operand_type(0).dims[dim_at(d)];
  }
  return terms;
}

// Dims of an operand whose elements have one scale.
Dims scaled_together(const Op& op, size_t side) {
  Dims together;
  if (op.kind == Kind::kDotGeneral) {
    const auto& a = op.as<DotAttrs>();
    together = side == 0 ? a.lhs_contract : a.rhs_contract;
    std::sort(together.begin(), together.end());
    return together;
  }
  const auto& a = op.as<ConvAttrs>();
  for (int64_t d = 0; d < op.operand_type(side).rank(); ++d) {
    const bool apart =
        side == 0 ? d == a.input_batch && a.batch_groups == 1 : d == a.kernel_output_feature;
    if (!apart) {
      together.push_back(d);
    }
  }
  return together;
}

// Which dim of the result each of the other dims is.
Dims result_dims(const Op& op, size_t side) {
  if (op.kind == Kind::kConvolution) {
    const auto& a = op.as<ConvAttrs>();
    return side == 1 ? Dims{a.output_feature} : a.batch_groups > 1 ? Dims{} : Dims{a.output_batch};
  }
  const auto& a = op.as<DotAttrs>();
  const Dims& batch = side == 0 ? a.lhs_batch : a.rhs_batch;
  const Dims& contract = side == 0 ? a.lhs_contract : a.rhs_contract;
  auto next = static_cast<int64_t>(batch.size());
  if (side == 1) {  // behind the free dims of the first operand
    next = op.type().rank() - (op.operand_type(1).rank() - static_cast<int64_t>(contract.size())) +
           static_cast<int64_t>(batch.size());
  }
  Dims out;
  for (int64_t d = 0; d < op.operand_type(side).rank(); ++d) {
    const auto as_batch = std::find(batch.begin(), batch.end(), d);
    if (as_batch != batch.end()) {
      out.push_back(as_batch - batch.begin());
    } else if (!has_dim(contract, d)) {
      out.push_back(next++);
    }
  }
  return out;
}

// The slices of one operand along one more summed dim, which comes first.
Value* stacked(Builder& b, const std::vector<Value*>& slices) {
  std::vector<Value*> list;
  for (Value* v : slices) {
    Dims dims = v->type.dims;
    dims.insert(dims.begin(), 1);
    list.push_back(b.reshape(v, dims));
  }
  return b.concatenate(list, 0);
}

// The slices of one operand side by side in its features, of each group.
Value* side_by_side(Builder& b, const std::vector<Value*>& slices, int64_t dim, int64_t groups) {
  std::vector<Value*> list;
  Dims dims = slices[0]->type.dims;
  Dims grouped = dims;
  grouped[dim_at(dim)] /= groups;
  grouped.insert(grouped.begin() + dim, groups);
  for (Value* v : slices) {
    list.push_back(b.reshape(v, grouped));
  }
  dims[dim_at(dim)] *= static_cast<int64_t>(slices.size());
  return b.reshape(b.concatenate(list, dim + 1), dims);
}

}  // namespace

// Slices have at most `bits` - 1 bits and a sign, so that the sum of a bracket's products is at
// most exact * terms * 2^(2 bits - 2) units. Brackets of products below 2^-29 may be rounded.
std::optional<SlicePlan> slice_plan(int64_t terms) {
  constexpr int kMostBits = 9, kLeastBits = 2, kRounded = 29;
  for (int bits = kMostBits; bits >= kLeastBits; --bits) {
    const int count = (kKeptBits + bits - 1) / bits, exact = kRounded / bits + 1;
    if (exact * terms <= int64_t{1} << (26 - 2 * bits)) {
      return SlicePlan{bits, count, exact};
    }
  }
  return std::nullopt;
}

bool contracts_by_slices(const Op& op, int64_t cores) {
  const int64_t terms = terms_of(op);
  if (op.type().count() == 0 || terms == 0 || !slice_plan(terms)) {
    return false;
  }
  const bool is_dot = op.kind == Kind::kDotGeneral;
  if (!is_dot && cores > 1) {
    return true;
  }
  const auto highest = [](const auto& a) {
    return std::max(a.lhs_precision, a.rhs_precision) == Precision::kHighest;
  };
  const bool exact = is_dot ? highest(op.as<DotAttrs>()) : highest(op.as<ConvAttrs>());
  const int64_t elements = op.operand_type(0).count() + op.operand_type(1).count();
  return !exact && op.type().count() * terms > kPerElement * elements + kForAll;
}

// Slice i is what is left of x, rounded to a multiple of its unit: t + c - c, where c is so large
// that its last place is the unit. Where the low part could matter to the next slice but one, it is
// added, and the error of that sum becomes the low part.
std::vector<Value*> DoubleContraction::slices_of(Pair x, const SlicePlan& plan) {
  std::vector<Value*> slices;
  const auto unit = [&](int i) { return std::ldexp(1.0, 1 - plan.bits * i); };
  double most = 1, most_low = 0x1p-25;  // of the parts' magnitudes
  for (int i = 1; i <= plan.count; ++i) {
    if (most_low > unit(i + 1) / 2) {
      x = m_.exact_sum(x.hi, x.lo);
      most_low = most * 0x1p-24;
    }
    Value* large = m_.number(x.hi, unit(i) * 0x1.8p23);
    Value* slice = b_.sub(b_.add(x.hi, large), large);
    slices.push_back(b_.convert(slice, Elem::kBf16));
    x.hi = b_.sub(x.hi, slice);
    most = unit(i) / 2;
  }
  return slices;
}

// The scale is 2^e, e the least exponent that is above all finite numbers of a row.
DoubleContraction::Side DoubleContraction::cut(const Pair& x, const Dims& scaled_together,
                                               const SlicePlan& plan) {
  Value* finite = b_.unary(Kind::kIsFinite, x.hi);
  Value* zero = b_.zeros_like(x.hi);
  const Pair inside{b_.select(finite, x.hi, zero), x.lo};
  Value* most = b_.unary(Kind::kAbs, inside.hi);
  if (!scaled_together.empty()) {
    most = b_.reduce(Kind::kMaximum, most, b_.splat({Elem::kF32, {}}, 0), scaled_together);
  }
  const Type bits{Elem::kI32, most->type.dims};
  Value *fraction = b_.splat_int(bits, 23), *word = b_.bitcast(most, bits);
  Value* field = b_.binary(Kind::kShiftRightLogical, word, fraction);
  Value* exponent = b_.convert(b_.sub(field, b_.splat_int(bits, 126)), Elem::kF32);
  Dims where;
  for (int64_t d = 0; d < x.hi->type.rank(); ++d) {
    if (!has_dim(scaled_together, d)) {
      where.push_back(d);
    }
  }
  Value* down = b_.broadcast(m_.negate(exponent), x.hi->type.dims, where);
  Value* special = b_.select(finite, b_.unary(Kind::kSign, x.hi), x.hi);
  return {slices_of(m_.times_power_of_two(inside, down), plan), exponent,
          b_.convert(special, Elem::kBf16)};
}

// The op on slices, x[0] with y[0], x[1] with y[1], .., and the sum of that.
Value* DoubleContraction::sum_of(const Op& op, const std::vector<Value*>& x,
                                 const std::vector<Value*>& y) {
  const Type type{Elem::kF32, op.type().dims};
  if (op.kind == Kind::kConvolution) {
    ConvAttrs a = op.as<ConvAttrs>();
    a.lhs_precision = a.rhs_precision = Precision::kDefault;
    return rw_.make(op.kind,
                    {side_by_side(b_, x, a.input_feature, a.feature_groups),
                     side_by_side(b_, y, a.kernel_input_feature, 1)},
                    type, a);
  }
  DotAttrs a = op.as<DotAttrs>();
  for (Dims* dims : {&a.lhs_batch, &a.rhs_batch, &a.lhs_contract, &a.rhs_contract}) {
    *dims = behind_stack(*dims);
  }
  a.lhs_contract.insert(a.lhs_contract.begin(), 0);
  a.rhs_contract.insert(a.rhs_contract.begin(), 0);
  a.lhs_precision = a.rhs_precision = Precision::kDefault;
  return rw_.make(op.kind, {stacked(b_, x), stacked(b_, y)}, type, a);
}

// The brackets, from the smallest.
Pair DoubleContraction::added(const Op& op, const Side& x, const Side& y, const SlicePlan& plan) {
  Pair sum;
  for (int bracket = plan.count; bracket >= 1; --bracket) {
    const std::vector<Value*> left(x.slices.begin(), x.slices.begin() + bracket);
    std::vector<Value*> right(y.slices.begin(), y.slices.begin() + bracket);
    std::reverse(right.begin(), right.end());
    Value* term = sum_of(op, left, right);
    if (sum.hi == nullptr) {
      sum = m_.from_f32(term);
    } else if (bracket > plan.exact) {
      sum.hi = b_.add(sum.hi, term);
    } else {
      const Pair s = m_.exact_sum(term, sum.hi);
      sum = m_.normal(s.hi, is_zero(sum.lo) ? s.lo : b_.add(s.lo, sum.lo));
    }
  }
  return sum;
}

Pair DoubleContraction::run(const Op& op, const Pair& x, const Pair& y) {
  constexpr double kMostPower = 252;  // beyond, all but zeros overflow
  const auto plan = slice_plan(terms_of(op));
  if (!plan) {
    throw Error("f64 with " + std::to_string(terms_of(op)) +
                " products in each sum; use float32, or a sum of shorter ones");
  }
  const Side left = cut(x, scaled_together(op, 0), *plan);
  const Side right = cut(y, scaled_together(op, 1), *plan);
  const Pair sum = added(op, left, right, *plan);
  const Dims& dims = op.type().dims;
  Value* of_right = b_.broadcast(right.exponent, dims, result_dims(op, 1));
  Value* power = b_.add(b_.broadcast(left.exponent, dims, result_dims(op, 0)), of_right);
  const Pair scaled = m_.times_power_of_two(sum, b_.min(power, m_.number(power, kMostPower)));
  Value* special = sum_of(op, {left.special}, {right.special});
  const Pair as_f32 = m_.from_f32(special);
  return m_.select(b_.unary(Kind::kIsFinite, special), scaled, as_f32);
}

}  // namespace tpu::compiler
