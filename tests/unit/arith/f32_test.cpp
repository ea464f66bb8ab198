// The integer reference of binary32 against the host's FMA unit with FTZ and DAZ set, NaNs
// canonicalised.
#include "arith/f32.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "arith/flush_mode.hpp"
#include "operands.hpp"

namespace tpu::spec {
namespace {

using test::OperandSource;
using test::special_f32;

constexpr uint64_t kSeed = 1;

uint32_t canonical_nan(float value) {
  return f32_is_nan(f32_bits(value)) ? kF32CanonicalNan : f32_bits(value);
}

__attribute__((target("fma"), noinline)) float host_fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
__attribute__((noinline)) float host_add(float a, float b) { return a + b; }
__attribute__((noinline)) float host_mul(float a, float b) { return a * b; }
__attribute__((noinline)) float host_div(float a, float b) { return a / b; }
__attribute__((noinline)) float host_sqrt(float a) {
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a)));
}

// One triple through every operation; false at the first difference, with a message.
testing::AssertionResult agree(uint32_t a, uint32_t b, uint32_t c) {
  const float x = f32_from_bits(a);
  const float y = f32_from_bits(b);
  const float z = f32_from_bits(c);
  const struct {
    const char* name;
    uint32_t host, reference;
  } results[] = {
      {"fma", canonical_nan(host_fma(x, y, z)), f32_fma_bits(a, b, c)},
      {"add", canonical_nan(host_add(x, y)), f32_add_bits(a, b)},
      {"sub", canonical_nan(host_add(x, -y)), f32_sub_bits(a, b)},
      {"mul", canonical_nan(host_mul(x, y)), f32_mul_bits(a, b)},
      {"div", canonical_nan(host_div(x, y)), f32_div_bits(a, b)},
      {"sqrt", canonical_nan(host_sqrt(x)), f32_sqrt_bits(a)},
  };
  for (const auto& r : results) {
    if (r.host != r.reference) {
      return testing::AssertionFailure() << std::hex << r.name << "(" << a << ", " << b << ", " << c
                                         << "): host " << r.host << ", reference " << r.reference;
    }
  }
  return testing::AssertionSuccess();
}

class F32 : public testing::Test {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("fma")) {
      GTEST_SKIP() << "this host has no FMA unit to compare with";
    }
  }
};

TEST_F(F32, EqualsHostOnAllTriplesOfSpecialValues) {
  const ScopedFlushMode flush;
  for (const uint32_t a : special_f32()) {
    for (const uint32_t b : special_f32()) {
      for (const uint32_t c : special_f32()) {
        ASSERT_TRUE(agree(a, b, c));
      }
    }
  }
}

TEST_F(F32, EqualsHostOnRandomValues) {
  const ScopedFlushMode flush;
  OperandSource source(kSeed);
  for (int i = 0; i < 2'000'000; ++i) {
    const uint32_t a = source.next();
    const uint32_t b = source.next();
    ASSERT_TRUE(agree(a, b, source.next())) << "seed " << kSeed << " iteration " << i;
  }
}

// c cancels the rounded product, so only the low half of the exact product is left.
TEST_F(F32, EqualsHostWhenTheProductCancels) {
  const ScopedFlushMode flush;
  OperandSource source(kSeed);
  for (int i = 0; i < 1'000'000; ++i) {
    const uint32_t a = source.next();
    const uint32_t b = source.next();
    const uint32_t step = source.next() % 5 - 2;
    ASSERT_TRUE(agree(a, b, (f32_mul_bits(a, b) ^ kF32SignMask) + step));
  }
}

TEST(F32Law, FlushIsDecidedAfterRounding) {
  // The largest subnormal sum rounds to itself and is flushed; a product that rounds up to the
  // smallest normal stays.
  EXPECT_EQ(f32_sub_bits(0x00800001u, 0x00800000u), 0u);
  EXPECT_EQ(f32_sub_bits(0x80800001u, 0x80800000u), kF32SignMask);
  EXPECT_EQ(f32_mul_bits(0x3f7fffffu, 0x00800000u), 0u);  // rounds to 0x007fffff.fe..
  EXPECT_EQ(f32_mul_bits(0x3f7fffffu, 0x00800001u),
            kF32MinNormal);  // just under the limit, rounds up
}

TEST(F32Law, IgnoresTheHostsMode) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr((saved & ~0xe040u) | 0x2000u);  // round down, no FTZ, no DAZ
  EXPECT_EQ(f32_add_bits(1u, kF32MinNormal), kF32MinNormal);
  EXPECT_EQ(f32_mul_bits(0x3f800001u, 0x3fc00001u), 0x3fc00003u);
  _mm_setcsr(saved);
}

TEST(F32Law, NansAreCanonical) {
  EXPECT_EQ(f32_add_bits(0xffffffffu, 0), kF32CanonicalNan);
  EXPECT_EQ(f32_add_bits(kF32Infinity, kF32Infinity | kF32SignMask), kF32CanonicalNan);
  EXPECT_EQ(f32_mul_bits(kF32Infinity, 1u), kF32CanonicalNan);  // a subnormal counts as zero
}

}  // namespace
}  // namespace tpu::spec
