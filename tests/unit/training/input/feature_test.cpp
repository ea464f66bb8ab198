// Features said in one word.
#include "input/feature.hpp"

#include <gtest/gtest.h>

#include "arrays.hpp"

namespace tpu::input {
namespace {

TEST(InputFeature, IsSaidByNameTypeAndShape) {
  const Feature image = parse_feature("train:image:u8[28,28,1]");
  EXPECT_EQ(image.name, "train:image");
  EXPECT_EQ(image.type, DType::kU8);
  EXPECT_EQ(image.shape, (Shape{28, 28, 1}));
  EXPECT_EQ(parse_feature("x:ui16").type, DType::kU16);
  EXPECT_EQ(parse_feature("x:bf16[3]").shape, (Shape{3}));
  EXPECT_EQ(parse_feature("x:f32[]").shape, Shape{});
}

TEST(InputFeature, RefusesWhatItCannotRead) {
  const std::string usage = "; features are said as image:u8[28,28,1] or label:i32";
  const auto refused = [](const std::string& text) {
    return error_of([&] { static_cast<void>(parse_feature(text)); });
  };
  EXPECT_EQ(refused("x"), "'x': no name and type" + usage);
  EXPECT_EQ(refused(":f32"), "':f32': no name and type" + usage);
  EXPECT_EQ(refused("x:f16"), "'x:f16': there is no type 'f16'" + usage);
  EXPECT_EQ(refused("x:f32[2"), "'x:f32[2': ']' is missing" + usage);
  for (const std::string dim : {"0", "-1", "a", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(refused("x:f32[2," + dim + "]"),
              "'x:f32[2," + dim + "]': invalid dimension '" + dim + "'" + usage);
  }
}

}  // namespace
}  // namespace tpu::input
