// Input files of every command, read whole. Only what has an end is read: regular files, and pipes
// up to a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tpu::spec {

/// "PATH: what is wrong; what to do".
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// No program, executable or description of a board is larger.
constexpr uint64_t kMaxInputBytes = uint64_t{1} << 32;

/// All bytes of a file or pipe; throws FileError when it cannot be read, is a folder or device, or
/// holds more than `max_bytes`.
std::vector<std::byte> read_whole_file(const std::string& path,
                                       uint64_t max_bytes = kMaxInputBytes);

/// Throws FileError when writing `output` would replace one of the files `inputs`, by whatever name
/// or link.
void refuse_overwrite(const std::string& output, std::span<const std::string> inputs);

}  // namespace tpu::spec
