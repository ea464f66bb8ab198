// Table driven, eight bytes a round.
#include "src/crc32c.hpp"

#include <array>
#include <cstring>

namespace tpu::driver {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;

constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

}  // namespace

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
  crc = ~crc;
  while (data.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data.data(), 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) {
      crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
    }
    data = data.subspan(8);
  }
  for (const std::byte value : data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(value)) & 0xFF];
  }
  return ~crc;
}

}  // namespace tpu::driver
