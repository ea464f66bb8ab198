// Pass `multiply_add`: a product with a scalar to which a scalar is added is rounded once.
//
//   %1 = multiply %0, broadcast(%a)
//   %2 = add %1, broadcast(%b)       =>     %1 = multiply_add %0, broadcast(%a), broadcast(%b)
//
// For f32, where the sum is the product's only user; the operands of both may stand in any order.
// It sees the program as its writer left it, before any other simplification, so that the rounding
// does not depend on what those find. Its specification: docs/numerics.md, "Products and sums".
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// True if anything was replaced.
bool fuse_multiply_add(Module& module);

}  // namespace tpu::compiler
