// gzip and zlib by zlib, whole files at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tpu::input {

enum class Compression : uint8_t { kNone, kGzip, kZlib };

/// By the first bytes of a file; kNone when they are of neither.
Compression compression_of(std::span<const std::byte> first);

/// `next` gives the next piece of the file, empty at its end. Several members one behind the other
/// are one file (gzip). Throws driver::Error InvalidArgument that names `path` and the place for
/// damaged and cut data, ResourceExhausted when the host has no room for the result.
std::vector<std::byte> unpack(const std::function<std::span<const std::byte>()>& next,
                              const std::string& path);

/// Packs piece by piece; the same input gives the same bytes.
class Packer {
 public:
  explicit Packer(Compression compression);
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  /// What is there of the packed file after these bytes; `last`: no more come.
  std::span<const std::byte> add(std::span<const std::byte> bytes, bool last);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::byte> out_;
};

}  // namespace tpu::input
