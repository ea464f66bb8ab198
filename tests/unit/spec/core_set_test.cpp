// Sets of cores, on both sides of the 64 that take no memory of their own.
#include "gang/core_set.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace tpu::spec {
namespace {

std::vector<uint32_t> members(const CoreSet& set) {
  std::vector<uint32_t> all;
  set.for_each([&](uint32_t core) { all.push_back(core); });
  return all;
}

TEST(CoreSet, AgreesWithASetOfNumbers) {
  CoreSet set;
  std::set<uint32_t> expected;
  uint32_t random = 1;
  for (int i = 0; i < 5000; ++i) {
    random = random * 1664525 + 1013904223;
    const uint32_t core = random >> 21;  // below 2,048
    if (random >> 8 & 1) {
      set.insert(core);
      expected.insert(core);
    } else {
      set.erase(core);
      expected.erase(core);
    }
    ASSERT_EQ(set.has(core), expected.contains(core));
    ASSERT_EQ(set.size(), expected.size());
    if (!expected.empty()) {
      ASSERT_EQ(set.lowest(), *expected.begin());
      ASSERT_EQ(set.end(), *expected.rbegin() + 1);
    }
  }
  EXPECT_EQ(members(set), std::vector<uint32_t>(expected.begin(), expected.end()));
  for (const uint32_t core : expected) {
    set.erase(core);
  }
  EXPECT_EQ(set, CoreSet()) << "what is left has no words";
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.end(), 0U);
}

TEST(CoreSet, WordsAndMasksNameTheSameCores) {
  const std::array<uint32_t, 8> words{5, 0x80000000, 0, 0, 0, 0, 1, 0};
  const CoreSet set{std::span<const uint32_t>(words)};
  EXPECT_EQ(members(set), (std::vector<uint32_t>{0, 2, 63, 192}));
  EXPECT_EQ(CoreSet(std::span(words).first(2)), CoreSet(0x8000000000000005));
  EXPECT_FALSE(set.has(193));
  EXPECT_FALSE(set.has(100000));
}

TEST(CoreSet, KnowsCommonMembers) {
  CoreSet low(6), high, both(6);
  high.insert(700);
  both.insert(700);
  EXPECT_FALSE(low.meets(high));
  EXPECT_TRUE(low.meets(both));
  EXPECT_TRUE(high.meets(both));
  EXPECT_TRUE(both.holds(low));
  EXPECT_TRUE(both.holds(high));
  EXPECT_FALSE(low.holds(both));
}

}  // namespace
}  // namespace tpu::spec
