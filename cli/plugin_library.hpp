// Where this program is, and the library for frameworks beside it.
#pragma once

#include <filesystem>

namespace tpu::driver {

std::filesystem::path folder_of_this_program();

/// TPU_LIBRARY_PATH of this process and of those that it starts, unless it names such a library.
void set_plugin_library();

}  // namespace tpu::driver
