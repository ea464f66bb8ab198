// Framing of GDB's remote protocol.
#include "debug/rsp.hpp"

#include <gtest/gtest.h>

namespace tpu::model {
namespace {

TEST(Rsp, FramesCarryAnyBytes) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) {
    every.push_back(static_cast<char>(byte));
  }
  RspReader reader;
  const std::vector<RspItem> items = reader.push(rsp_frame(every));
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].kind, RspItem::Kind::kPacket);
  EXPECT_EQ(items[0].body, every);
  EXPECT_EQ(rsp_frame("OK"), "$OK#9a");
}

TEST(Rsp, PacketsComeInAnyPieces) {
  RspReader reader;
  std::vector<RspItem> items;
  const std::string bytes = "+$g#67\x03-" + rsp_frame("m0,4") + "noise";
  for (const char c : bytes) {
    for (RspItem& item : reader.push(std::string(1, c))) {
      items.push_back(std::move(item));
    }
  }
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(items[0].kind, RspItem::Kind::kAck);
  EXPECT_EQ(items[1].body, "g");
  EXPECT_EQ(items[2].kind, RspItem::Kind::kInterrupt);
  EXPECT_EQ(items[3].kind, RspItem::Kind::kNak);
  EXPECT_EQ(items[4].body, "m0,4");
}

TEST(Rsp, WrongSumsAndLongPacketsAreBad) {
  RspReader reader;
  for (const std::string& bytes : {std::string("$g#68"), std::string("$g#zz"),
                                   rsp_frame(std::string(kRspPacketBytes + 1, 'x'))}) {
    const auto items = reader.push(bytes);
    ASSERT_EQ(items.size(), 1U);
    EXPECT_EQ(items[0].kind, RspItem::Kind::kBad);
  }
  EXPECT_EQ(reader.push(rsp_frame(std::string(kRspPacketBytes, 'x')))[0].body.size(),
            kRspPacketBytes);
}

TEST(Rsp, NumbersAreHexAndNothingElse) {
  EXPECT_EQ(rsp_number("ffffffff"), UINT32_MAX);
  EXPECT_EQ(rsp_number("0"), 0U);
  for (const char* wrong : {"", "100000000", "-1", "0x1", "1 ", "g"}) {
    EXPECT_FALSE(rsp_number(wrong)) << wrong;
  }
  EXPECT_EQ(rsp_hex32(0x12345678), "78563412");
  EXPECT_EQ(rsp_unhex("0aFF"), (std::vector<uint8_t>{10, 255}));
  EXPECT_FALSE(rsp_unhex("0"));
  EXPECT_FALSE(rsp_unhex("0g"));
}

}  // namespace
}  // namespace tpu::model
