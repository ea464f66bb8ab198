// all_reduce and reduce_scatter of 64-bit integers, which the exchange between cores can only
// combine as separate 32-bit arrays.
#pragma once

#include "legalize/int64/wide_math.hpp"

namespace tpu::compiler {

// What replaces `op`, whose operand is held as `x`. Throws Error for bodies that cannot be split.
Wide reduce_over_cores(const Op& op, const Wide& x, Rewriter& rw);

}  // namespace tpu::compiler
