// Reads a file as a whole, for the import and for tpuc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tpu::compiler {

// Throws Error with the path and the system's reason ("cannot read 'x': Is a directory").
std::vector<std::byte> read_file(const std::string& path);

}  // namespace tpu::compiler
