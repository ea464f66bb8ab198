// Where this program is, and the files that were built or installed with it: examples, digits, the
// library for frameworks, and the Python of a wheel.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tpu::driver {

std::filesystem::path folder_of_this_program();

/// The source tree whose build/PRESET/bin this program is in; empty for an installed one.
std::filesystem::path source_tree();

/// share/tpuboard of an installation, which has the folders `examples` and `digits`; else the
/// source tree; empty if there is neither.
std::filesystem::path shared_files();

/// A file of `examples`, such as "mnist_mlp/train_step.mlirbc". Throws Error (FailedPrecondition)
/// that says where it was expected.
std::filesystem::path example_file(const std::filesystem::path& name);

/// Folders that can have images.npy and labels.npy of digits, the preferred one first.
std::vector<std::filesystem::path> digit_folders();

/// The Python whose package has this program; empty where it comes from no wheel.
std::string python_of_wheel();

/// --python where it was given, else the Python of the wheel, else of $VIRTUAL_ENV, else `python3`.
std::string chosen_python(const std::string& given);

/// A path as texts have it: relative to the working directory where it is below that.
std::string shown(const std::filesystem::path& path);

/// What somebody types to run this program.
std::string own_command();

/// The library for frameworks that belongs to this program; empty if there is none.
std::filesystem::path plugin_library();

/// TPU_LIBRARY_PATH of this process and of those that it starts, unless it names such a library.
void set_plugin_library();

}  // namespace tpu::driver
