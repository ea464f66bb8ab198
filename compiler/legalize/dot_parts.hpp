// A dot_general whose commands do not fit into a program, as a loop over parts of its result.
//   before   y = dot(a, b)                                  f32[40000, n]
//   after    y = 0; for (i = 0; i < 10; ++i) y[4000 i ..] = dot(a[4000 i ..], b)
// Each element is the same sum in the same order, so that its bits stay. The parts are of one size:
// where the dimension does not divide, the last one begins earlier and computes some rows again.
#pragma once

#include <vector>

#include "ir/graph.hpp"

namespace tpu::compiler {

// The dot_generals of the module's main function and its regions with the types and attributes of
// `dot`, itself among them: those of equal layers. Empty if it is another op or none.
std::vector<const Op*> equal_dots(const Module& module, const Op* dot);

// Of these dot_generals of the module, each in at least `parts` parts. False: the module has none
// of them, or they have no dimension that could be cut.
bool loop_over_dot_parts(Module& module, const std::vector<const Op*>& dots, int64_t parts);

}  // namespace tpu::compiler
