// NumPy .npy files, header versions 1 to 3. Arrays in Fortran order or of big-endian numbers are
// turned when they are read; what is written is little-endian in C order.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "file/files.hpp"
#include "tpu/types.hpp"

namespace tpu::driver {

/// Parses a file's bytes; `name` is for error texts. bf16 are 2-byte raw items. Throws
/// InvalidArgument.
HostArray parse_npy(std::span<const std::byte> bytes, const std::string& name);
HostArray read_npy(const std::string& path);

/// An array that stays in its file, which is only mapped, unless it has to be turned. Throws as
/// parse_npy() and FileBytes.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);
  /// Of all of it; valid as long as this is there. What is made of it counts when check() has
  /// returned since.
  const HostView& view() const { return view_; }
  /// As FileBytes::check().
  void check() const { file_.check(); }

 private:
  FileBytes file_;
  std::vector<std::byte> turned_;
  HostView view_;
};

/// What stands before the elements: version 1.0 (2.0 when it is long).
std::string npy_header(DType dtype, const Shape& shape);
std::vector<std::byte> format_npy(const HostView& array);
/// Replaces the file in one step; throws as FileWriter.
void write_npy(const std::string& path, const HostView& array);

}  // namespace tpu::driver
