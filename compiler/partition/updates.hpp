// Elementwise work on the way to results whose place the program says, such as the update of
// parameters and moments that lie whole by a gradient that lies cut. Private to the pass.
#pragma once

#include <unordered_map>

#include "partition/propagate.hpp"

namespace tpu::compiler {

// Values of main that are to be computed where the results lie that they lead to, and that place:
// those for which less moves if operands move there at the beginning than if results do at the end.
//
//   m2 = m + g; p2 = p + m2; return p2, m2       with g cut, all others whole: g is gathered once
std::unordered_map<const Value*, Spec> settled_updates(const Module& module,
                                                       const Placements& placements);

}  // namespace tpu::compiler
