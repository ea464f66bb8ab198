// Pass `split_wide`: 64-bit integers become pairs of ui32 arrays, the low half and the high one.
//   before   y = add(x, c) : i64[4]
//   after    lo = add(x_lo, c_lo); carry = lo < x_lo; hi = x_hi + c_hi + carry : ui32[4] each
// In memory an array is two planes, all low words and then all high ones: an argument or a result
// i64[4] is two values ui32[4] behind this pass (WordPart), which share a binding slot; what the
// host sees (ArgInfo::global) stays. Loops that count in 64 bits within the range of i32 count in
// i32. Regions take two values for each of theirs.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// True if anything was split.
bool split_wide(Module& module);

// Its first step: counters of loops, in 64 bits and within the range of i32, become i32.
bool narrow_counters(Module& module);

}  // namespace tpu::compiler
