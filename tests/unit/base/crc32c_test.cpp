// CRC-32C against its published check values, and its two ways against each other.
#include "file/crc32c.hpp"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tpu::spec {
namespace {

TEST(Crc32c, MatchesThePublishedCheckValues) {
  const std::string_view text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32c(bytes), 0xE3069283u);
  EXPECT_EQ(crc32c_portable(bytes), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
}

TEST(Crc32c, IsTheSameWithAndWithoutTheInstruction) {
  std::vector<std::byte> bytes(40000);
  uint32_t state = 1;
  for (std::byte& value : bytes) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::byte>(state >> 24);
  }
  // Around the lengths at which one, three short and three long streams begin.
  for (const size_t length : {0u, 1u, 7u, 8u, 9u, 767u, 768u, 769u, 1536u, 12287u, 12288u, 12289u,
                              13056u, 13063u, 24576u, 39990u}) {
    for (const size_t first : {0u, 1u, 3u, 8u}) {
      const auto part = std::span(bytes).subspan(first, length);
      ASSERT_EQ(crc32c(part, 0x1234u), crc32c_portable(part, 0x1234u)) << length << " at " << first;
    }
  }
}

}  // namespace
}  // namespace tpu::spec
