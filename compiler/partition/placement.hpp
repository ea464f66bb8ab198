// Where the arrays of the global graph lie, before anything is moved. Private to the pass
// `partition`.
#pragma once

#include <unordered_map>

#include "ir/graph.hpp"

namespace tpu::compiler {

inline constexpr const char* kShardMapInControl =
    "jax.shard_map inside of a loop, a branch or another jax.shard_map is not supported; put the "
    "loop or branch inside of the shard_map";

// The sharding of every value of main's own region. An argument of which the program says nothing
// takes the sharding of its first use. Throws Error for what no core could compute from the parts
// it has.
std::unordered_map<const Value*, Sharding> place_values(const Module& module);

}  // namespace tpu::compiler
