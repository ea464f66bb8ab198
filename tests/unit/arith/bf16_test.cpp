// bf16 conversions against their definition, over every bf16 and every rounding position.
#include "arith/bf16.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "operands.hpp"

namespace tpu::spec {
namespace {

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    EXPECT_EQ(bf16_to_f32_bits(value), bits << 16);
    EXPECT_EQ(bf16_from_f32_bits(bf16_to_f32_bits(value)), value) << std::hex << bits;
  }
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t upper = 0x0080; upper < 0x7f80; ++upper) {
    const uint32_t base = upper << 16;
    EXPECT_EQ(bf16_from_f32_bits(base | 0x7fff), upper);
    EXPECT_EQ(bf16_from_f32_bits(base | 0x8000), upper + (upper & 1));
    EXPECT_EQ(bf16_from_f32_bits(base | 0x8001), upper + 1);
    EXPECT_EQ(bf16_from_f32_bits(kF32SignMask | base | 0xffff), 0x8000u | (upper + 1));
  }
}

TEST(Bf16, SubnormalInputsAreZeroBeforeRounding) {
  EXPECT_EQ(bf16_from_f32_bits(0x007fffffu), 0u);  // would round up to the smallest normal
  EXPECT_EQ(bf16_from_f32_bits(0x807fffffu), 0x8000u);
  EXPECT_EQ(bf16_from_f32_bits(0x00010001u), 0u);  // next to one that a bf16 holds
}

TEST(Bf16, NansAreCanonicalAndLargeValuesOverflow) {
  EXPECT_EQ(bf16_from_f32_bits(0x7f800001u),
            kBf16CanonicalNan);  // the payload lies in the lost half
  EXPECT_EQ(bf16_from_f32_bits(0xffffffffu), kBf16CanonicalNan);
  EXPECT_EQ(bf16_from_f32_bits(0x7f7fffffu), 0x7f80u);
  EXPECT_EQ(bf16_from_f32_bits(0xff800000u), 0xff80u);
}

}  // namespace
}  // namespace tpu::spec
