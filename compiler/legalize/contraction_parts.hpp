// What convolutions and dot_generals share when they are lowered: precision by parts in bf16, and
// integer sums of products on the vector unit.
#pragma once

#include <array>

#include "legalize/builder.hpp"

namespace tpu::compiler::legalization {

// The higher of both sides.
Precision joint_precision(Precision lhs, Precision rhs);

// f32 x as a sum of bf16 parts: hi = bf16(x), then what is missing, rounded again. A part behind a
// hi that is not finite is +0. `high` multiplies lo*hi, hi*lo, hi*hi; `highest` mid*mid, hi*lo,
// lo*hi, hi*mid, mid*hi, hi*hi. Each result stacks the factors of these products along a new first
// dimension, smallest products first; contracting it gives one running sum. A bf16 operand has no
// parts but the first, and products with absent parts are left out.
std::array<Value*, 2> stack_parts(Builder& b, Value* lhs, Value* rhs, Precision precision);

// Element type in which the matrix unit (or, for integers, the vector unit) takes the operands of a
// contraction: the operand's own float type, or one type for both if any is an integer.
std::array<Value*, 2> contraction_operands(Builder& b, Value* lhs, Value* rhs, Elem result);

}  // namespace tpu::compiler::legalization
