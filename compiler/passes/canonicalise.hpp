// Pass `canonicalise`: one form for each thing that can be written in several ways. Equal bits.
//
//   before   %1 = reshape %0 : f32[1,4]
//            %2 = broadcast_in_dim %1 {dims=[0,1]} : f32[2,4]
//            %3 = convert %2 : f32[2,4]
//            %4 = clamp %lo, %3, %hi : f32[2,4]
//   after    %1 = broadcast_in_dim %0 {dims=[1]} : f32[2,4]
//            %2 = maximum %1, %lo2
//            %3 = minimum %2, %hi2
//
// The rules:
// - convert to the same type, and reshape, transpose, broadcast, slice, pad, reverse, concatenate
//   that change nothing: gone.
// - optimization_barrier: only in front of what is read elsewhere too, so that values behind it are
//   not merged with equal ones in front of it (jax.checkpoint). The pass `form` starts what is
//   behind it when all its operands are there.
// - reshape of reshape, transpose of transpose, broadcast of broadcast, broadcast of a reshape that
//   only adds or drops dimensions of size 1: one op. Transpose or broadcast that only moves or adds
//   dimensions of size 1: reshape. Broadcast of a constant of equal elements: constant.
// - clamp: minimum(maximum(x, low), high). Scalar predicates of select are broadcast.
// - transpose around dot_general: taken into its dimension numbers or its operand order.
// - reduce over dimensions of size 1 with a plain body: reshape, and the body with the initial
//   value.
// - all_reduce and all_gather of several operands: one op each.
// - divide by a power of two: multiply by its reciprocal, which is exact.
// - x + 0 where x cannot be -0 (sums, dots, exponentials).
// - while: carried values that never change are taken from outside, those that nobody needs go, a
//   counter's last value is a constant, a loop that never runs is its operands.
// - if, case: a known branch is taken; results that nobody needs, or that are the same in all
//   branches, go. dynamic_slice with constant starts: slice.
// - comparisons of loop counters whose outcome their range decides: constant; and, or with a
//   constant truth value.
// - select with a constant predicate or equal choices; integer x + 0, x * 1, x - 0.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Runs to a fixed point. True if anything changed.
bool canonicalise(Module& module);

}  // namespace tpu::compiler
