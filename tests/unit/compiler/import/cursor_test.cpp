// Primitives of MLIR bytecode.
#include "import/cursor.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tpu::compiler::bytecode {
namespace {

struct Bytes {
  explicit Bytes(std::vector<int> values) {
    for (const int v : values) {
      data.push_back(static_cast<std::byte>(v));
    }
  }
  Cursor cursor() const { return {data, "test"}; }
  std::vector<std::byte> data;
};

TEST(Cursor, ReadsVarintsOfEveryLength) {
  EXPECT_EQ(Bytes({0x03}).cursor().varint(), 1u);
  EXPECT_EQ(Bytes({0xff}).cursor().varint(), 127u);
  // One trailing zero bit: one more byte; the value is the 16 bits shifted right by 2.
  EXPECT_EQ(Bytes({0x02, 0x02}).cursor().varint(), 128u);
  EXPECT_EQ(Bytes({0xfe, 0xff}).cursor().varint(), 0x3fffu);
  EXPECT_EQ(Bytes({0x00, 1, 2, 3, 4, 5, 6, 7, 8}).cursor().varint(), 0x0807060504030201u);
  EXPECT_EQ(Bytes({0x80, 0, 0, 0, 0, 0, 0, 1}).cursor().varint(), uint64_t{1} << 48);
}

TEST(Cursor, ReadsSignedVarints) {
  EXPECT_EQ(Bytes({0x01}).cursor().svarint(), 0);
  EXPECT_EQ(Bytes({0x03}).cursor().svarint(), -1);
  EXPECT_EQ(Bytes({0x05}).cursor().svarint(), 1);
  EXPECT_EQ(Bytes({0x00, 255, 255, 255, 255, 255, 255, 255, 255}).cursor().svarint(), INT64_MIN);
}

TEST(Cursor, FlagsAreTheLowBit) {
  bool flag = false;
  EXPECT_EQ(Bytes({0x0f}).cursor().flagged(flag), 3u);
  EXPECT_TRUE(flag);
}

TEST(Cursor, NeverReadsPastTheEnd) {
  EXPECT_THROW(Bytes({}).cursor().byte(), Error);
  EXPECT_THROW(Bytes({0x02}).cursor().varint(), Error);
  EXPECT_THROW(Bytes({0x00, 1, 2}).cursor().varint(), Error);
  EXPECT_THROW(Bytes({1, 2}).cursor().take(3), Error);
}

TEST(Cursor, RefusesCountsThatCannotBe) {
  EXPECT_THROW(Bytes({0xff, 1, 2}).cursor().count(), Error);
  EXPECT_EQ(Bytes({0x05, 1, 2}).cursor().count(), 2u);
  EXPECT_THROW(Bytes({0x05}).cursor().index(2, "things"), Error);
}

}  // namespace
}  // namespace tpu::compiler::bytecode
