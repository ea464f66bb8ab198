// Integers of a counted loop that follow from its counter, such as the starts of slices.
#pragma once

#include <optional>
#include <vector>

#include "ir/control.hpp"
#include "ir/graph.hpp"

namespace tpu::compiler {

// `v` in each iteration. Nothing: it is made from anything but the counter and constants, or there
// are more than 4,096 iterations.
std::optional<std::vector<int64_t>> values_in_loop(const Value* v, const Op& loop,
                                                   const CountedLoop& counted);

}  // namespace tpu::compiler
