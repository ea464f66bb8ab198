// SHA-256 over arrays: how two runs are compared. The bytes that are hashed stand in
// docs/command.md.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tpu/types.hpp"

namespace tpu::driver {

class Digest {
 public:
  /// How the zeros of a large array enter: as bytes like all others, or a stretch of them as one
  /// byte. The second is for results, such as tables of which few rows were ever trained.
  enum class Zeros { kHashed, kCounted };
  explicit Digest(Zeros zeros = Zeros::kHashed);
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

  /// Arrays of so many bytes are large, and cut into such pieces.
  static constexpr uint64_t kLargeBytes = uint64_t{1} << 30;
  static constexpr size_t kPieceBytes = size_t{1} << 16;

 private:
  void add_piece(std::span<const std::byte> piece);
  void end_piece();

  struct State;
  std::unique_ptr<State> state_;
  const Zeros zeros_;
  bool in_pieces_ = false;        // the array that is being added
  std::vector<std::byte> begun_;  // of a piece
};

}  // namespace tpu::driver
