// Ops with a body on 64-bit integers that are made of ops on words, in the forms that words have:
// where the halves do not meet (bit operations, updates that replace what is there), and sums.
#pragma once

#include <functional>
#include <optional>

#include "legalize/int64/wide_math.hpp"

namespace tpu::compiler {

// Nothing for other bodies. A sum has the sums of digits of the low words, as wide as their number
// lets them be without an overflow, and that of the high words:
//   before   s = reduce add x over 4096 elements : i64
//   after    s = init + sum(lo & 0xffff) + sum(lo >> 16) * 2^16 + sum(hi) * 2^32
std::optional<Wide> reduce_by_halves(const Op& op, const Wide& x, const Wide& init, Rewriter& rw);

// `places`: makes the indices, which both halves share.
std::optional<Wide> scatter_by_halves(const Op& op, const Wide& x,
                                      const std::function<Value*()>& places, const Wide& updates,
                                      Rewriter& rw);

}  // namespace tpu::compiler
