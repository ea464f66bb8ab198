// Reading of NumPy .npz files: ZIP archives of .npy files, stored or deflated.
#pragma once

#include <string>
#include <vector>

#include "tpu/types.hpp"

namespace tpu::driver {

/// The names of a file's arrays, in its order, without ".npy". Throws InvalidArgument when it is no
/// ZIP archive.
std::vector<std::string> npz_names(const std::string& path);

/// One array. Throws InvalidArgument, which names what there is, when it is not there or damaged.
HostArray read_npz(const std::string& path, const std::string& name);

}  // namespace tpu::driver
