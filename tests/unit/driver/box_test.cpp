// Boxes of arrays: cut and pasted in any rank; and CRC-32C against its published check value.
#include "src/box.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "src/crc32c.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

HostArray counting(const Shape& shape) {
  HostArray array{DType::kU16, shape, {}};
  for (uint64_t i = 0; i < element_count(shape); ++i) {
    array.bytes.push_back(static_cast<std::byte>(i & 0xFF));
    array.bytes.push_back(static_cast<std::byte>(i >> 8));
  }
  return array;
}

TEST(Box, CutsInnerAndOuterDimensions) {
  const HostArray global = counting({4, 3, 5});
  const HostArray box = cut_box(global, {1, 1, 2}, {2, 2, 3});
  std::vector<int> values;
  for (size_t i = 0; i < box.bytes.size(); i += 2) {
    values.push_back(static_cast<int>(box.bytes[i]));
  }
  EXPECT_EQ(values, (std::vector<int>{22, 23, 24, 27, 28, 29, 37, 38, 39, 42, 43, 44}));
}

TEST(Box, PastesBackWhatItCut) {
  for (const Shape& shape : {Shape{}, Shape{8}, Shape{4, 6}, Shape{2, 4, 4}, Shape{2, 2, 2, 2}}) {
    const HostArray global = counting(shape);
    HostArray back{DType::kU16, shape, std::vector<std::byte>(global.bytes.size())};
    Shape half = shape;
    for (int64_t& dim : half) {
      dim /= 2;
    }
    for (uint32_t corner = 0; corner < 1u << shape.size(); ++corner) {
      Shape offset(shape.size());
      for (size_t d = 0; d < shape.size(); ++d) {
        offset[d] = (corner >> d & 1) != 0 ? half[d] : 0;
      }
      paste_box(back, cut_box(global, offset, half), offset);
    }
    EXPECT_EQ(back.bytes, global.bytes);
  }
}

TEST(Box, RefusesBoxesThatStickOut) {
  const HostArray global = counting({4, 4});
  EXPECT_THROW(cut_box(global, {2, 0}, {3, 4}), Error);
  EXPECT_THROW(cut_box(global, {-1, 0}, {1, 4}), Error);
  EXPECT_THROW(cut_box(global, {0}, {4}), Error);
  HostArray shorter = global;
  shorter.bytes.pop_back();
  EXPECT_THROW(cut_box(shorter, {0, 0}, {4, 4}), Error);
}

TEST(Box, FindsTheFirstDifference) {
  const HostArray left = counting({3, 5});
  HostArray right = left;
  EXPECT_FALSE(first_difference(left, right));
  right.bytes[2 * 7 + 1] = std::byte{0xAB};
  const auto found = first_difference(left, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, (Shape{1, 2}));
  EXPECT_EQ(found->left, "0x0007");
  EXPECT_EQ(found->right, "0xab07");
}

TEST(Crc32c, MatchesThePublishedCheckValue) {
  const std::string_view text = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text))), 0xE3069283u);
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

}  // namespace
}  // namespace tpu::driver
