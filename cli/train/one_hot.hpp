// How many classes a program makes of an argument that holds class numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.hpp"

namespace tpu::driver {

/// For each argument of a simplified module: the number of classes when it is made into a one-hot
/// code (compared with 0, 1, 2, ...; of several codes the shortest), else 0. Other numbers than
/// these are lost in such a code without a word.
std::vector<int64_t> one_hot_classes(const compiler::Module& module);

}  // namespace tpu::driver
