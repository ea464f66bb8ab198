// Which build of this library runs.
#pragma once

#include <string>

namespace tpu::pjrt {

/// Of the linker, in hexadecimal digits.
std::string build_id();
/// The file that this code was loaded from.
std::string library_path();

}  // namespace tpu::pjrt
