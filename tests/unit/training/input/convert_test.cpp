// Stored values to batch values: types, scale, ranges; cuts and mirrors against a plain model.
#include "input/convert.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "arrays.hpp"
#include "numbers/bf16.hpp"

namespace tpu::input {
namespace {

template <typename To, typename From>
std::vector<To> converted(const Feature& feature, DType stored, const std::vector<From>& values,
                          const AugmentKey& key = {}) {
  Converter converter(feature, 0);
  std::vector<std::byte> to(converter.bytes());
  converter.convert({stored, std::as_bytes(std::span(values))}, key, to);
  return values_of<To>(to);
}

std::string bad(const std::function<void()>& call) {
  try {
    call();
  } catch (const BadExample& error) {
    return error.what();
  }
  return {};
}

TEST(InputConvert, ScalesBytesByDivision) {
  const Feature feature{.name = "x", .type = DType::kF32, .shape = {4}, .divide = 255.0f};
  const std::vector<uint8_t> bytes = {0, 1, 51, 255};
  EXPECT_EQ((converted<float>(feature, DType::kU8, bytes)),
            (std::vector<float>{0.0f, 1.0f / 255.0f, 51.0f / 255.0f, 1.0f}));
  Feature half = feature;
  half.type = DType::kBf16;
  half.subtract = 51.0f;
  std::vector<uint16_t> expected;
  for (const uint8_t byte : bytes) {
    expected.push_back(training::bf16_from_f32((static_cast<float>(byte) - 51.0f) / 255.0f));
  }
  EXPECT_EQ((converted<uint16_t>(half, DType::kU8, bytes)), expected);
}

TEST(InputConvert, ConvertsBetweenNumbers) {
  const auto feature = [](DType type) { return Feature{.name = "x", .type = type, .shape = {2}}; };
  EXPECT_EQ((converted<int32_t>(feature(DType::kI32), DType::kI64, std::vector<int64_t>{-5, 7})),
            (std::vector<int32_t>{-5, 7}));
  EXPECT_EQ((converted<float>(feature(DType::kF32), DType::kI64, std::vector<int64_t>{-5, 7})),
            (std::vector<float>{-5.0f, 7.0f}));
  EXPECT_EQ((converted<uint8_t>(feature(DType::kI1), DType::kU8, std::vector<uint8_t>{0, 9})),
            (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(
      (converted<float>(feature(DType::kF32), DType::kBf16, std::vector<uint16_t>{0x3F80, 0xC000})),
      (std::vector<float>{1.0f, -2.0f}));
  EXPECT_EQ((converted<uint64_t>(feature(DType::kU64), DType::kU64,
                                 std::vector<uint64_t>{UINT64_MAX, 0})),
            (std::vector<uint64_t>{UINT64_MAX, 0}));
}

TEST(InputConvert, RefusesValuesThatDoNotFit) {
  Feature feature{.name = "label", .type = DType::kU8, .shape = {}};
  EXPECT_EQ(bad([&] { converted<uint8_t>(feature, DType::kI64, std::vector<int64_t>{256}); }),
            "feature 'label': value 256 does not fit into ui8");
  EXPECT_EQ(bad([&] { converted<uint8_t>(feature, DType::kF32, std::vector<float>{1.0f}); }),
            "feature 'label': stored floats cannot become ui8: expected f32 or bf16");
  EXPECT_EQ(bad([&] {
              converted<uint8_t>(feature, DType::kI64, std::vector<int64_t>{1, 2});
            }),
            "feature 'label': 16 bytes, 2 elements of i64; 1 elements are expected (ui8[])");
  feature.range = IntegerRange{-1, 9};
  EXPECT_EQ(bad([&] { converted<uint8_t>(feature, DType::kU8, std::vector<uint8_t>{10}); }),
            "feature 'label': value 10 is not in the range -1 to 9");
  EXPECT_EQ((converted<uint8_t>(feature, DType::kI64, std::vector<int64_t>{9})),
            (std::vector<uint8_t>{9}));
}

TEST(InputConvert, TakesOneStoredTypeWhenToldSo) {
  const Feature feature{.name = "image", .expected_type = DType::kU8};
  EXPECT_EQ((converted<float>(feature, DType::kU8, std::vector<uint8_t>{3})),
            (std::vector<float>{3.0f}));
  EXPECT_EQ(bad([&] { converted<float>(feature, DType::kF32, std::vector<float>{3.0f}); }),
            "feature 'image': stored as f32; ui8 is expected");
}

TEST(InputConvert, RefusesFeaturesThatMakeNoSense) {
  const auto refused = [](Feature feature) { return error_of([&] { Converter(feature, 0); }); };
  EXPECT_EQ(refused({.name = "x", .type = DType::kI32, .divide = 2.0f}),
            "feature 'x': i32 cannot be scaled; f32 and bf16 can");
  EXPECT_EQ(refused({.name = "x", .divide = 0.0f}), "feature 'x': (value - 0) / 0 is not a number");
  EXPECT_EQ(refused({.name = "x", .type = DType::kI32, .range = IntegerRange{3, 2}}),
            "feature 'x': no integer is in the range 3 to 2");
  EXPECT_EQ(refused({.name = "x", .type = DType::kF32, .range = IntegerRange{0, 2}}),
            "feature 'x': a range is of integers, not of f32");
  EXPECT_EQ(refused({.name = "x", .type = DType::kBytes2}),
            "feature 'x': elements of type bytes2 cannot be fed to a program");
  EXPECT_EQ(refused({.name = "x", .shape = {0}}), "feature 'x': f32[0] has no elements");
  EXPECT_EQ(refused({.name = "x", .shape = {4, 4}, .flip = true}),
            "feature 'x': only images [height, width, channels] can be cut and mirrored, not "
            "f32[4,4] out of f32[4,4]");
  EXPECT_EQ(
      refused({.name = "x", .shape = {8, 4, 1}, .stored_shape = {4, 4, 1}, .crop_padding = 1}),
      "feature 'x': f32[8,4,1] cannot be cut out of f32[4,4,1] padded by 1");
}

// Images of 6 x 5 x 2, each pixel with a number of its own from 1 on, cut to 4 x 4 with padding 1.
TEST(InputConvert, CutsAndMirrorsAtRandomPlaces) {
  const Feature feature{.name = "image",
                        .type = DType::kU8,
                        .shape = {4, 4, 2},
                        .stored_shape = {6, 5, 2},
                        .crop_padding = 1,
                        .flip = true};
  std::vector<uint8_t> image(60);
  std::iota(image.begin(), image.end(), uint8_t{1});
  std::map<std::vector<uint8_t>, std::string> possible;
  for (int top = -1; top <= 3; ++top) {
    for (int left = -1; left <= 2; ++left) {
      for (const bool mirror : {false, true}) {
        std::vector<uint8_t> cut(32);
        for (int y = 0; y < 4; ++y) {
          for (int x = 0; x < 4; ++x) {
            const int from_y = top + y;
            const int from_x = left + (mirror ? 3 - x : x);
            const bool inside = from_y >= 0 && from_y < 6 && from_x >= 0 && from_x < 5;
            for (int c = 0; c < 2; ++c) {
              cut[static_cast<size_t>((y * 4 + x) * 2 + c)] =
                  inside ? image[static_cast<size_t>((from_y * 5 + from_x) * 2 + c)] : uint8_t{0};
            }
          }
        }
        possible[cut] = std::to_string(top) + " " + std::to_string(left) + (mirror ? " m" : "");
      }
    }
  }
  ASSERT_EQ(possible.size(), 40u);
  std::set<std::string> seen;
  for (uint64_t example = 0; example < 500; ++example) {
    const auto cut = converted<uint8_t>(feature, DType::kU8, image, {1, 2, example});
    ASSERT_TRUE(possible.contains(cut)) << example;
    seen.insert(possible[cut]);
    EXPECT_EQ((converted<uint8_t>(feature, DType::kU8, image, {1, 2, example})), cut);
  }
  EXPECT_EQ(seen.size(), 40u);
}

TEST(InputConvert, CutsTheMiddleInEvaluation) {
  const Feature feature{.name = "image",
                        .type = DType::kU8,
                        .shape = {1, 2, 1},
                        .stored_shape = {3, 4, 1},
                        .flip = true,
                        .augment = false};
  std::vector<uint8_t> image(12);
  std::iota(image.begin(), image.end(), uint8_t{0});
  EXPECT_EQ((converted<uint8_t>(feature, DType::kU8, image)), (std::vector<uint8_t>{5, 6}));
}

// Two features of one example are cut at places of their own; an epoch and a seed change them.
TEST(InputConvert, KeysTheRandomNumbers) {
  const Feature feature{
      .name = "image", .type = DType::kU8, .shape = {64, 64, 1}, .crop_padding = 32};
  const std::vector<uint8_t> image(64 * 64, 1);
  const auto cut = [&](uint64_t number, const AugmentKey& key) {
    Converter converter(feature, number);
    std::vector<std::byte> to(converter.bytes());
    converter.convert({DType::kU8, std::as_bytes(std::span(image))}, key, to);
    return to;
  };
  std::set<std::vector<std::byte>> seen;
  for (const AugmentKey& key : {AugmentKey{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}) {
    seen.insert(cut(0, key));
    seen.insert(cut(1, key));
  }
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace tpu::input
