// Where the arrays of the global graph lie if nothing is moved. Private to the pass `splice`.
#pragma once

#include <optional>
#include <unordered_map>

#include "ir/graph.hpp"

namespace tpu::compiler {

// The sharding of every value of main's own region. An argument of which the program says nothing
// takes the sharding of its first use. Nothing if some op is no shard_map over all axes and works
// on an array that is cut, or an array is wanted otherwise than it lies.
std::optional<std::unordered_map<const Value*, Sharding>> place_values(const Module& module);

}  // namespace tpu::compiler
