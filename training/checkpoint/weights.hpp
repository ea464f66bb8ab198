// State leaves from a safetensors file that something else has made: pretrained weights, or a
// checkpoint of another run. A map says which tensor goes where:
//   "encoder.layer0.kernel" = 3          # number of the state leaf
//   "encoder.layer0.bias" = "params_b"   # its name in the program
// Without a map a tensor goes to the leaf of its name, or to leaf 3 if it is called "state.3".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tpu/executable.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

/// Values by number of the leaf; of leaves that no tensor goes to there are none, and tensors that
/// go nowhere are left out. F32, BF16 and F16 are rounded to a leaf's f32 or bf16; all else must be
/// of the leaf's type. `map_file`: empty: none. Throws InvalidArgument that names file, line,
/// tensor and leaf; also when no tensor goes anywhere.
std::map<size_t, driver::HostArray> load_weights(const std::string& path,
                                                 const std::string& map_file,
                                                 const std::vector<driver::ParameterInfo>& leaves);

}  // namespace tpu::training
