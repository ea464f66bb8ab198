// The integer reference of binary32 against the host's arithmetic in flush mode (host_f32.hpp),
// NaNs canonicalised.
#include "arith/f32.hpp"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>

#include "arith/flush_mode.hpp"
#include "arith/host_f32.hpp"
#include "operands.hpp"

namespace tpu::spec {
namespace {

using test::OperandSource;
using test::special_f32;

constexpr uint64_t kSeed = 1;

uint32_t canonical_nan(float value) {
  return f32_is_nan(f32_bits(value)) ? kF32CanonicalNan : f32_bits(value);
}

__attribute__((noinline)) float fma_here(float a, float b, float c) { return host_fma(a, b, c); }
__attribute__((noinline)) float add_here(float a, float b) { return a + b; }
__attribute__((noinline)) float mul_here(float a, float b) { return host_mul(a, b); }
__attribute__((noinline)) float div_here(float a, float b) { return a / b; }
__attribute__((noinline)) float sqrt_here(float a) { return __builtin_sqrtf(a); }
__attribute__((noinline)) float narrow_here(double a) { return host_narrow(a); }

// One triple through every operation; false at the first difference, with a message.
testing::AssertionResult agree(uint32_t a, uint32_t b, uint32_t c) {
  const float x = f32_from_bits(a);
  const float y = f32_from_bits(b);
  const float z = f32_from_bits(c);
  const struct {
    const char* name;
    uint32_t host, reference;
  } results[] = {
      {"fma", canonical_nan(fma_here(x, y, z)), f32_fma_bits(a, b, c)},
      {"add", canonical_nan(add_here(x, y)), f32_add_bits(a, b)},
      {"sub", canonical_nan(add_here(x, -y)), f32_sub_bits(a, b)},
      {"mul", canonical_nan(mul_here(x, y)), f32_mul_bits(a, b)},
      {"div", canonical_nan(div_here(x, y)), f32_div_bits(a, b)},
      {"sqrt", canonical_nan(sqrt_here(x)), f32_sqrt_bits(a)},
      // The product of two numbers of f32 is exact in double.
      {"narrow", canonical_nan(narrow_here(static_cast<double>(x) * static_cast<double>(y))),
       f32_mul_bits(a, b)},
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
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma")) {
      GTEST_SKIP() << "this host has no FMA unit to compare with";
    }
#endif
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

// Products and sums around the smallest normal number, where it matters whether a result is flushed
// before it is rounded or after.
TEST_F(F32, EqualsHostAroundTheSmallestNormalNumber) {
  const ScopedFlushMode flush;
  OperandSource source(kSeed);
  int kept = 0;
  for (int i = 0; i < 300'000; ++i) {
    const uint32_t a = 0x3f000000u + source.next() % 0x3f800000u / 2;  // from 1/2 on, below 2^63
    const uint32_t near = f32_div_bits(kF32MinNormal, a) + source.next() % 3 - 1;
    const uint32_t sign = source.next() & kF32SignMask;
    ASSERT_TRUE(agree(a, near ^ sign, 0));
    kept += (f32_mul_bits(a, near) == kF32MinNormal) ? 1 : 0;
    // A product of 2^-149 and less beside c.
    const uint32_t tiny = 0x0a000000u + source.next() % 0x18000000u;
    const uint32_t other = f32_div_bits(0x00800000u, tiny);
    const uint32_t scale = 0x33000000u + (source.next() % 16 << 23);  // 2^-25 to 2^-10
    ASSERT_TRUE(agree(f32_mul_bits(tiny, scale), other ^ sign, kF32MinNormal + source.next() % 3));
    ASSERT_TRUE(agree(f32_mul_bits(tiny, scale), other ^ sign,
                      (kF32MinNormal + source.next() % 3) | kF32SignMask));
  }
  EXPECT_GT(kept, 1000);
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
  const int saved = std::fegetround();
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);  // and no flush mode
  EXPECT_EQ(f32_add_bits(1u, kF32MinNormal), kF32MinNormal);
  EXPECT_EQ(f32_mul_bits(0x3f800001u, 0x3fc00001u), 0x3fc00003u);
  std::fesetround(saved);
}

TEST(F32Law, NansAreCanonical) {
  EXPECT_EQ(f32_add_bits(0xffffffffu, 0), kF32CanonicalNan);
  EXPECT_EQ(f32_add_bits(kF32Infinity, kF32Infinity | kF32SignMask), kF32CanonicalNan);
  EXPECT_EQ(f32_mul_bits(kF32Infinity, 1u), kF32CanonicalNan);  // a subnormal counts as zero
}

}  // namespace
}  // namespace tpu::spec
