// The files that a training configuration reads.
#pragma once

#include <string>
#include <vector>

#include "loop/train_config.hpp"

namespace tpu::driver {

/// Programs, data and initial state; record files by the names that their patterns find. Throws
/// Error for a pattern that finds none.
std::vector<std::string> config_files(const training::TrainConfig& config);

}  // namespace tpu::driver
