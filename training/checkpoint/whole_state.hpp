// All state leaves from one place: a NumPy .npz file, or the newest complete checkpoint of a
// folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tpu/executable.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

/// Values by number of the leaf. An array of a .npz goes to the leaf of its name in the program, or
/// to leaf 3 if it is called "state.3" or "arr_3" (numpy.savez(file, *leaves)). Throws
/// InvalidArgument that names every leaf without an array and every array without a leaf, or the
/// leaf whose type or shape is another. In a folder damaged checkpoints are passed over, and `say`
/// is told of each; nothing in it is changed.
std::vector<driver::HostArray> load_state(const std::string& path,
                                          const std::vector<driver::ParameterInfo>& leaves,
                                          const std::function<void(const std::string&)>& say);

}  // namespace tpu::training
