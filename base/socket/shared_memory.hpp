// A stretch of memory that two processes map: a file without a name, whose size is sealed, so that
// no process can take away what the other one reads. The file is open until it was passed on: the
// mapping lasts without it, and processes may have few open files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "socket/descriptor.hpp"

namespace tpu::base {

class SharedMemory {
 public:
  /// Throws driver::Error (ResourceExhausted).
  static SharedMemory create(size_t bytes);
  /// Of another process. Throws driver::Error: InvalidArgument for a file that is smaller or not
  /// sealed, ResourceExhausted.
  static SharedMemory map(Descriptor file, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept
      : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int file() const { return file_.number(); }
  /// The other process has it.
  void close_file() { file_ = Descriptor(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  SharedMemory(Descriptor file, std::span<std::byte> bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  Descriptor file_;
  std::span<std::byte> bytes_;
};

}  // namespace tpu::base
