// Arguments of a program as the command line gives them: NumPy files by number.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tpu/executable.hpp"

namespace tpu::driver {

/// "0=a.npy" -> file of each argument. Throws UsageError for wrong numbers; the program is not
/// known yet.
std::map<size_t, std::string> input_files(const std::vector<std::string>& texts);

/// On the cores of the program; with `zeros`, zeros stand for what is not given. Waits until they
/// are there. Throws InvalidArgument for files that do not fit, or are missing.
std::vector<Array> place_inputs(const Executable& program,
                                const std::map<size_t, std::string>& files, bool zeros);

}  // namespace tpu::driver
