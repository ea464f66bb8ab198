// Limits of the host: there for what it has, and of an order that any host has. How fast it is,
// nobody asserts.
#include "cli/host_limits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mxu/mxu_fast.hpp"

namespace tpu::driver {
namespace {

// Room for hosts of the next decades and for those that do much else.
void expect_rate(double rate) {
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e15);
}

TEST(HostLimits, KnowsEachInstructionSetOfThisHost) {
  for (const std::string& simd : host_simd()) {
    SCOPED_TRACE(simd);
    const HostLimits limits = measure_host_limits(simd);
    expect_rate(limits.copy_bytes_per_second);
    expect_rate(limits.cached_copy_bytes_per_second);
    expect_rate(limits.fma_flops);
    if (simd == "amx" || simd == "avx512_bf16") {
      expect_rate(limits.bf16_flops);
    } else {
      EXPECT_EQ(limits.bf16_flops, 0);
    }
    if (simd == "amx") {
      expect_rate(limits.amx_flops);
    } else {
      EXPECT_EQ(limits.amx_flops, 0);
    }
  }
}

TEST(HostLimits, CopiesNeedNoVectorUnit) {
  const HostLimits limits = measure_host_limits("scalar");
  expect_rate(limits.copy_bytes_per_second);
  expect_rate(limits.cached_copy_bytes_per_second);
  EXPECT_EQ(limits.fma_flops, 0);
  EXPECT_EQ(limits.amx_flops, 0);
  EXPECT_TRUE(limits.json()["fma_flops"].is_null());
  EXPECT_EQ(limits.json()["copy_bytes_per_second"], limits.copy_bytes_per_second);
}

TEST(HostLimits, TheBestInstructionSetIsTheMatrixEngines) {
  const std::vector<std::string> host = host_simd();
  if (host.empty()) {
    GTEST_SKIP() << "this host has neither AVX2 nor more";
  }
  const model::MxuSimd best = model::mxu_simd_from_name("auto");
  EXPECT_EQ(host.back(), base::simd_name(best));
}

TEST(HostLimits, InstructionSetsBuildOnEachOther) {
  const std::vector<std::string> host = host_simd();
  const auto has = [&](const char* name) { return std::ranges::count(host, name) == 1 ? 1U : 0U; };
  EXPECT_EQ(has("neon") + has("avx2") + has("avx512") + has("avx512_bf16") + has("amx"),
            host.size());
  EXPECT_TRUE(has("avx2") + has("neon") == 1 || host.empty());
  EXPECT_TRUE(has("avx512") != 0 || has("avx512_bf16") == 0);
  EXPECT_TRUE(has("avx512_bf16") != 0 || has("amx") == 0);
}

}  // namespace
}  // namespace tpu::driver
