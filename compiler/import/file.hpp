// Reads a file as a whole, for the import and for tpuc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpu::compiler {

// Throws Error with the path and the reason ("x: is a folder; name a file").
std::vector<std::byte> read_file(const std::string& path);

}  // namespace tpu::compiler
