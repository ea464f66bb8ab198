// NumPy .npy files: dense little-endian arrays in C order, header versions 1 to 3.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cli/files/files.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

/// Parses a file's bytes; `name` is for error texts. bf16 are 2-byte raw items. Throws
/// InvalidArgument.
HostArray parse_npy(std::span<const std::byte> bytes, const std::string& name);
HostArray read_npy(const std::string& path);

/// Version 1.0 (2.0 when the header is long).
std::vector<std::byte> format_npy(const HostView& array);
/// Replaces the file in one step; throws as write_file().
void write_npy(const std::string& path, const HostView& array);
/// As write_npy() of an array of zero bits, which need not be in memory.
void write_zeros_npy(const std::string& path, DType dtype, const Shape& shape);

}  // namespace tpu::driver
