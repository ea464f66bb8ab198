// Nests of which some indexes are known: what depends on them alone is computed by the compiler.
//   before   p = iota of a loop outside of the command; y = select(tap == p + 2, x, 0)
//   after    at p = 1, for taps that are 0, 1 or 2: y = 0
#pragma once

#include <cstdint>
#include <map>

#include "vpu/nest.hpp"

namespace tpu::compiler {

// `values`: by number of the index. Nodes, accesses and indexes keep their numbers; those that
// nothing reads any more are left to the generator, which makes no code for them.
Nest fix_indexes(const Nest& nest, const std::map<int, int64_t>& values);

}  // namespace tpu::compiler
