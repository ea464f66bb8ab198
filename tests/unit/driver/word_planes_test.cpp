// 64-bit integers between the host's elements and the planes of HBM, in pieces of any size.
#include "src/memory/word_planes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tpu::driver {
namespace {

std::vector<std::byte> bytes_of(const std::vector<uint32_t>& words) {
  std::vector<std::byte> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// Element i has the words 2 i and 2 i + 1.
std::vector<std::byte> counting_elements(uint32_t count) {
  std::vector<uint32_t> words(2 * count);
  for (uint32_t i = 0; i < 2 * count; ++i) {
    words[i] = i;
  }
  return bytes_of(words);
}

TEST(WordPlanes, AreOf64BitNumbersOnly) {
  EXPECT_TRUE(in_planes(DType::kF64));
  EXPECT_TRUE(in_planes(DType::kI64));
  EXPECT_TRUE(in_planes(DType::kU64));
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kI1, DType::kBytes8}) {
    EXPECT_FALSE(in_planes(dtype)) << dtype_name(dtype);
  }
}

TEST(WordPlanes, HaveAllLowWordsFirst) {
  std::vector<std::byte> array = counting_elements(3);
  to_planes(array);
  EXPECT_EQ(array, bytes_of({0, 2, 4, 1, 3, 5}));
  to_elements(array);
  EXPECT_EQ(array, counting_elements(3));
}

// 20,000 elements are more than one piece of the conversion.
TEST(WordPlanes, AreFilledFromTheElementsBehindAPlace) {
  const std::vector<std::byte> array = counting_elements(20'100);
  std::vector<std::byte> planes(8 * 20'000);
  const auto source = [&](uint64_t at, std::span<std::byte> elements) {
    std::memcpy(elements.data(), array.data() + at, elements.size());
  };
  fill_planes(source, 8 * 100, planes);
  std::vector<std::byte> expected(array.begin() + 800, array.end());
  to_planes(expected);
  EXPECT_EQ(planes, expected);
}

TEST(WordPlanes, GiveTheBytesThatAreAskedFor) {
  const std::vector<std::byte> array = counting_elements(20'100);
  std::vector<std::byte> planes(array.begin() + 800, array.end());
  to_planes(planes);
  for (const auto& [first, end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {800, 8 * 20'100}, {803, 65'000}, {800 + 65'536, 800 + 65'537}, {70'001, 160'799}}) {
    std::vector<std::byte> got;
    const auto sink = [&](uint64_t at, std::span<const std::byte> elements) {
      EXPECT_EQ(at, first + got.size());
      got.insert(got.end(), elements.begin(), elements.end());
    };
    drain_planes(planes, 800, first, end, sink);
    EXPECT_EQ(got, std::vector<std::byte>(array.begin() + static_cast<ptrdiff_t>(first),
                                          array.begin() + static_cast<ptrdiff_t>(end)));
  }
}

}  // namespace
}  // namespace tpu::driver
