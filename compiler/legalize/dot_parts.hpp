// A dot_general whose commands do not fit into a program, as a loop over parts of its result.
//   before   y = dot(a, b)                                  f32[40000, n]
//   after    y = 0; for (i = 0; i < 10; ++i) y[4000 i ..] = dot(a[4000 i ..], b)
// Each element is the same sum in the same order, so that its bits stay. The parts are of one size:
// where the dimension does not divide, the last one begins earlier and computes some rows again.
#pragma once

#include "ir/graph.hpp"

namespace tpu::compiler {

// Of the op `dot` of the module, in at least `parts` parts. False: it is no dot_general, or has no
// dimension that could be cut.
bool loop_over_dot_parts(Module& module, const Op* dot, int64_t parts);

}  // namespace tpu::compiler
