// SHA-256 over arrays: how two runs are compared. The bytes that are hashed stand in
// docs/host_driver.md.
#pragma once

#include <memory>
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
  /// As add() of an array of zero bits, which need not be in memory.
  void add_zeros(DType dtype, const Shape& shape);
  /// Hexadecimal; ends the digest.
  std::string finish();

 private:
  void add_type(DType dtype, const Shape& shape);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tpu::driver
