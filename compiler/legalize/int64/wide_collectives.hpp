// all_reduce and reduce_scatter of 64-bit integers, which the exchange between cores can only
// combine as separate 32-bit arrays.
#pragma once

#include "legalize/int64/wide_math.hpp"

namespace tpu::compiler {

// True if the body can be applied to halves. The others are reduced by each core that gets the
// result, of what all members have (legalize/collective.cpp).
bool reduces_by_halves(const Op& op);

// What replaces an op whose body can, with its one operand held as `x`.
Wide reduce_over_cores(const Op& op, const Wide& x, Rewriter& rw);

}  // namespace tpu::compiler
