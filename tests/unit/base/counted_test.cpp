// Numbers with their nouns.
#include "terminal/counted.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace tpu::spec {
namespace {

TEST(Counted, OnlyOneIsSingular) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(uint8_t{1}, "core"), "1 core");
  EXPECT_EQ(counted(UINT64_MAX, "step"), "18446744073709551615 steps");
  EXPECT_EQ(counted(-1, "op"), "-1 ops");
}

}  // namespace
}  // namespace tpu::spec
