// SHA-256 over arrays: how two runs are compared. The bytes that are hashed stand in
// docs/host_driver.md.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "tpu/types.hpp"

namespace tpu::driver {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const HostView& array);
  /// As add(), piece by piece: its type first, then its bytes front to back.
  void begin(DType dtype, const Shape& shape);
  void add_bytes(std::span<const std::byte> bytes);
  void add_zeros(uint64_t count);
  /// Hexadecimal; ends the digest.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tpu::driver
