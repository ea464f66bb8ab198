// Type rules of ops that take sizes as operands, and of rng. What the sizes are is known to the
// pass `static_sizes`.
#include "ir/verify_rule.hpp"

namespace tpu::compiler {

void SizeRule::sizes_as_operands() const {
  check(in(0).elem == out().elem, "operand and result must have one element type");
  const auto integers = [&](size_t i, const Dims& dims) {
    check(is_integer(in(i).elem) && in(i).dims == dims, [&] {
      return "operand " + std::to_string(i) + " must be integers of shape " + to_string(dims);
    });
  };
  if (op_.kind == Kind::kDynamicConv) {
    integers(2, {static_cast<int64_t>(op_.as<ConvAttrs>().input_spatial.size()), 2});
    return;
  }
  if (op_.kind == Kind::kSetDimensionSize) {
    const int64_t d = op_.as<DimAttrs>().dim;
    check(in(0) == out() && d >= 0 && d < in(0).rank(),
          "operand and result must have one type, and the dimension");
    return integers(1, {});
  }
  check(in(0).rank() == out().rank(), "operand and result must have one rank");
  const bool pads = op_.kind == Kind::kDynamicPad;
  check(!pads || in(1) == Type{in(0).elem, {}},
        "the padding value must be a scalar of the operand's type");
  for (size_t i = pads ? 2 : 1; i < op_.operands.size(); ++i) {
    integers(i, {in(0).rank()});
  }
}

void SizeRule::rng() const {
  const Type bound{out().elem, {}};
  check(in(0) == bound && in(1) == bound, "the bounds must be scalars of the result's type");
  check(op_.as<RngAttrs>().algorithm == "uniform" || is_float(out().elem),
        "a normal distribution is of floats");
}

}  // namespace tpu::compiler
