#include "format/proto_reader.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tpu::spec {
namespace {

std::string error_of(const std::string& bytes) {
  try {
    for (ProtoReader reader(bytes); reader.next();) {
    }
    return "";
  } catch (const ProtoError& error) {
    return error.what();
  }
}

TEST(ProtoReader, GivesFieldsOfAllWireTypes) {
  const std::string bytes(
      "\x08\x96\x01\x11\x01\x02\x03\x04\x05\x06\x07\x08\x1a\x02hi\x25\x00\x00\x80\x3f", 21);
  ProtoReader reader(bytes);
  const auto number = reader.next(), wide = reader.next(), text = reader.next(),
             narrow = reader.next();
  ASSERT_TRUE(number && wide && text && narrow);
  EXPECT_EQ(number->number, 1u);
  EXPECT_EQ(number->value, 150u);
  EXPECT_EQ(wide->wire, kProtoFixed64);
  EXPECT_EQ(wide->value, 0x0807060504030201u);
  EXPECT_EQ(text->bytes, "hi");
  EXPECT_EQ(narrow->number, 4u);
  EXPECT_EQ(narrow->value, 0x3f800000u);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.done());
}

TEST(ProtoReader, TakesNegativeNumbersAsTenBytes) {
  const std::string bytes("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
  ProtoReader reader(bytes);
  EXPECT_EQ(static_cast<int64_t>(reader.next()->value), -1);
}

TEST(ProtoReader, RefusesDamagedBytes) {
  EXPECT_EQ(error_of("\x08"), "the bytes end inside a field");
  EXPECT_EQ(error_of("\x0a\x05hi"), "the bytes end inside a field");
  EXPECT_EQ(error_of("\x0d\x01\x02\x03"), "the bytes end inside a field");
  EXPECT_EQ(error_of("\x0b"), "a field has an invalid wire type: expected 0, 1, 2 or 5");
  EXPECT_EQ(error_of(std::string("\x00\x01", 2)),
            "a field has an invalid number: expected 1 to 2^29 - 1");
  EXPECT_EQ(error_of("\x08" + std::string(10, '\xff') + "\x01"), "a varint has more than 64 bits");
  // A length of nearly 2^64 must not wrap round.
  EXPECT_EQ(error_of("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            "the bytes end inside a field");
}

}  // namespace
}  // namespace tpu::spec
