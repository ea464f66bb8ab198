// CRC-32C (Castagnoli, reflected, initial value and final XOR all ones) of byte ranges, as the
// hostdma unit computes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tpu::model {

class Crc32c {
 public:
  void add(std::span<const std::byte> data) {
    size_t at = 0;
    for (; at + 8 <= data.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, data.data() + at, sizeof word);
      word ^= state_;
      state_ = 0;
      for (size_t i = 0; i < 8; ++i) {
        state_ ^= kTables[7 - i][word >> (8 * i) & 0xFF];
      }
    }
    for (; at < data.size(); ++at) {
      state_ = state_ >> 8 ^ kTables[0][(state_ ^ static_cast<uint32_t>(data[at])) & 0xFF];
    }
  }
  uint32_t value() const { return ~state_; }

  static uint32_t of(std::span<const std::byte> data) {
    Crc32c crc;
    crc.add(data);
    return crc.value();
  }

 private:
  using Tables = std::array<std::array<uint32_t, 256>, 8>;

  static constexpr Tables make_tables() {
    constexpr uint32_t kPolynomial = 0x82F63B78;
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
      }
      tables[0][byte] = crc;
    }
    for (size_t i = 1; i < 8; ++i) {
      for (size_t byte = 0; byte < 256; ++byte) {
        tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 0xFF];
      }
    }
    return tables;
  }

  static const Tables kTables;
  uint32_t state_ = 0xFFFFFFFF;
};

inline constexpr Crc32c::Tables Crc32c::kTables = Crc32c::make_tables();

}  // namespace tpu::model
