// The examples of a training run as their files have them, whole in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/train_config.hpp"
#include "tpu/executable.hpp"

namespace tpu::training {

/// All examples of one input, the first dimension counts them: .npy, an array of .npz, a tensor of
/// .safetensors; any other file holds raw u8, `values` an example. Throws InvalidArgument.
driver::HostArray read_array(const InputConfig& input, uint64_t values);

/// One array for each input, [examples, values], out of TFRecord files: the feature of its name.
/// `infos`: the program's arguments, [batch, ...]. Throws InvalidArgument that names file and
/// record.
std::vector<driver::HostArray> read_records(const TrainConfig& config,
                                            const std::vector<driver::ParameterInfo>& infos);

}  // namespace tpu::training
