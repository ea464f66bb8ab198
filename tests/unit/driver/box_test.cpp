// Boxes of arrays: cut and pasted in any rank.
#include "src/memory/box.hpp"

#include <gtest/gtest.h>

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

std::vector<std::byte> cut(const HostArray& global, const Shape& offset, const Shape& local) {
  const Box box(global.dtype, global.shape, offset, local);
  std::vector<std::byte> bytes(box.bytes());
  box.cut(global.bytes, 0, bytes);
  return bytes;
}

TEST(Box, CutsInnerAndOuterDimensions) {
  const std::vector<std::byte> box = cut(counting({4, 3, 5}), {1, 1, 2}, {2, 2, 3});
  std::vector<int> values;
  for (size_t i = 0; i < box.size(); i += 2) {
    values.push_back(static_cast<int>(box[i]));
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
      const Box box(DType::kU16, shape, offset, half);
      box.paste(back.bytes, 0, cut(global, offset, half));
    }
    EXPECT_EQ(back.bytes, global.bytes);
  }
}

TEST(Box, GivesTheSameBytesInPiecesOfAnySize) {
  const HostArray global = counting({5, 4, 6});
  const std::vector<std::pair<Shape, Shape>> boxes = {{{0, 0, 0}, {5, 4, 6}},
                                                      {{1, 0, 0}, {3, 4, 6}},
                                                      {{1, 1, 0}, {3, 2, 6}},
                                                      {{1, 1, 2}, {3, 2, 3}}};
  for (const auto& [offset, local] : boxes) {
    const Box box(global.dtype, global.shape, offset, local);
    const std::vector<std::byte> whole = cut(global, offset, local);
    for (const uint64_t size : {uint64_t{1}, uint64_t{7}, uint64_t{12}, uint64_t{1000}}) {
      std::vector<std::byte> pieces(whole.size());
      HostArray back{DType::kU16, global.shape, global.bytes};
      for (uint64_t at = 0; at < whole.size(); at += size) {
        const auto piece = std::span(pieces).subspan(at, std::min(size, whole.size() - at));
        box.cut(global.bytes, at, piece);
        box.paste(back.bytes, at, piece);
      }
      EXPECT_EQ(pieces, whole) << size;
      EXPECT_EQ(back.bytes, global.bytes) << size;
    }
  }
}

// Which bytes of the box lie in a window is counted one by one.
TEST(Box, OneRangeOfItLiesInAnyWindowOfTheGlobalArray) {
  const HostArray global = counting({4, 3, 5});
  const std::vector<std::pair<Shape, Shape>> boxes = {
      {{0, 0, 0}, {4, 3, 5}}, {{1, 0, 0}, {2, 3, 5}}, {{0, 1, 2}, {4, 1, 2}},
      {{1, 1, 1}, {1, 2, 3}}, {{3, 2, 4}, {1, 1, 1}}, {{2, 1, 0}, {2, 0, 5}}};
  for (const auto& [offset, local] : boxes) {
    const Box box(global.dtype, global.shape, offset, local);
    const std::vector<std::byte> whole = cut(global, offset, local);
    for (uint64_t first = 0; first <= global.bytes.size(); first += 3) {
      for (uint64_t end = first; end <= global.bytes.size(); end += 5) {
        uint64_t before = 0, inside = 0;
        for (uint64_t at = 0; at < whole.size(); ++at) {
          const auto element = static_cast<uint64_t>(whole[at / 2 * 2]);
          const uint64_t place = element * 2 + at % 2;
          before += place < first ? 1 : 0;
          inside += place >= first && place < end ? 1 : 0;
        }
        const auto range = box.range_within(first, end);
        ASSERT_EQ(range, std::pair(before, before + inside)) << first << ' ' << end;
        std::vector<std::byte> window(end - first);
        const auto data = std::span(whole).subspan(before, inside);
        box.paste(window, before, data, first);
        EXPECT_FALSE(box.first_difference(window, data, before, first));
        for (uint64_t at = first; at < end; ++at) {
          EXPECT_TRUE(window[at - first] == std::byte{0} || window[at - first] == global.bytes[at]);
        }
      }
    }
  }
}

TEST(Box, RefusesBoxesThatStickOut) {
  const auto refused = [](const Shape& offset, const Shape& local) {
    EXPECT_THROW(Box(DType::kU16, {4, 4}, offset, local), Error);
  };
  refused({2, 0}, {3, 4});
  refused({-1, 0}, {1, 4});
  refused({0}, {4});
  refused({0, 0}, {-1, 4});
  refused({INT64_MAX, 0}, {INT64_MAX, 4});
}

TEST(Box, FindsTheFirstDifference) {
  const HostArray left = counting({4, 7});
  std::vector<std::byte> right = cut(left, {1, 1}, {3, 5});
  const Box box(left.dtype, left.shape, {1, 1}, {3, 5});
  EXPECT_FALSE(box.first_difference(left.bytes, right));
  right[2 * 7 + 1] = std::byte{0xAB};
  const auto found = box.first_difference(left.bytes, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, (Shape{1, 2}));
  EXPECT_EQ(found->left, "0x0011");
  EXPECT_EQ(found->right, "0xab11");
}

TEST(Sizes, AreCheckedForSignAndOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_EQ(byte_count(DType::kF32, {3, 5}), 60u);
  EXPECT_EQ(byte_count(DType::kF32, {}), 4u);
  EXPECT_EQ(byte_count(DType::kF32, {kHuge, kHuge, 0}), 0u);
  EXPECT_EQ(byte_count(DType::kU8, {int64_t{1} << 62}), uint64_t{1} << 62);
  for (const Shape& shape : {Shape{-1}, Shape{0, -1}, Shape{-1, 0}, Shape{kHuge, kHuge},
                             Shape{int64_t{1} << 61}, Shape{INT64_MAX}}) {
    EXPECT_THROW(static_cast<void>(byte_count(DType::kF32, shape)), Error);
  }
  EXPECT_THROW(static_cast<void>(byte_count(static_cast<DType>(200), {1})), Error);
}

}  // namespace
}  // namespace tpu::driver
