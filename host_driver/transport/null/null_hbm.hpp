// HBM of one core of the null board.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tpu/spec/rings.h"

namespace tpu::driver {

/// 64 KiB pages on first write; absent pages read as zero.
class NullHbm {
 public:
  explicit NullHbm(uint64_t bytes) : bytes_(bytes) {}
  bool holds(uint64_t at, uint64_t bytes) const { return at <= bytes_ && bytes <= bytes_ - at; }
  void read(uint64_t at, std::span<std::byte> out) const;
  void write(uint64_t at, std::span<const std::byte> data);
  /// Repeats a 32-bit pattern; whole pages of zero are dropped.
  void fill(uint64_t at, uint64_t bytes, uint32_t pattern);
  void copy_from(const NullHbm& source, uint64_t from, uint64_t to, uint64_t bytes);

 private:
  static constexpr uint64_t kPage = TPU_HBM_PAGE_BYTES;
  uint64_t bytes_;
  std::unordered_map<uint64_t, std::vector<std::byte>> pages_;
};

}  // namespace tpu::driver
