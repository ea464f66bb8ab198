// Carried values of counted loops whose initial value nobody reads: arrays into which each
// iteration writes another part, as the stacked results of `scan`.
//   before   zeros f32[24, 512]; while: dynamic_update_slice(carried, row, counter, 0)
//   after    the array starts as whatever lies in its place
#pragma once

#include "ir/control.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// True if the body only writes to carried value `index`, by one dynamic_update_slice, and all
// iterations together write every element.
bool is_overwritten(const Op& loop, const CountedLoop& counted, size_t index);

}  // namespace tpu::compiler
