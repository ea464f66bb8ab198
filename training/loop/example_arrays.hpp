// Arrays of examples as their files have them, whole in memory.
#pragma once

#include <cstdint>

#include "loop/train_config.hpp"
#include "tpu/types.hpp"

namespace tpu::training {

/// All examples of one input, the first dimension counts them: .npy, an array of .npz, a tensor of
/// .safetensors; any other file holds raw u8, `values` an example. Throws InvalidArgument.
driver::HostArray read_array(const InputConfig& input, uint64_t values);

}  // namespace tpu::training
