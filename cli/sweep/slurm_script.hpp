// A sweep as one job array of Slurm: each task runs one row.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/sweep/sweep_file.hpp"

namespace tpu::driver {

/// `program`: tpuboard as the nodes find it.
std::string slurm_script(const Sweep& sweep, const std::filesystem::path& program,
                         const std::filesystem::path& out);

/// As a shell takes it for one word.
std::string shell_word(const std::string& text);
std::string shell_line(const std::vector<std::string>& words);

}  // namespace tpu::driver
