// Range allocator: alignment, best fit, joining of holes, against a plain model of taken ranges.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/memory/range_allocator.hpp"

namespace tpu::driver {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(RangeAllocator, AlignsSmallAndLargeRanges) {
  RangeAllocator ranges(RangeAllocator::kPage, kMiB);
  const auto small = ranges.allocate(1);
  const auto large = ranges.allocate(RangeAllocator::kPage);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(*small % RangeAllocator::kAlign, 0u);
  EXPECT_EQ(*large % RangeAllocator::kPage, 0u);
  EXPECT_EQ(ranges.used(), RangeAllocator::kAlign + RangeAllocator::kPage);
}

// A hole of a page's size that does not begin at a page has no room for one.
TEST(RangeAllocator, PassesOverHolesThatAreTooSmallBehindTheNextPage) {
  constexpr uint64_t kPage = RangeAllocator::kPage;
  RangeAllocator alone(kPage + RangeAllocator::kAlign, kPage);
  EXPECT_FALSE(alone.allocate(kPage));
  EXPECT_TRUE(alone.allocate(RangeAllocator::kAlign));
  RangeAllocator ranges(kPage + RangeAllocator::kAlign, 5 * kPage);
  const auto first = ranges.allocate(kPage);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, 2 * kPage);
  EXPECT_EQ(ranges.allocate(2 * kPage), 3 * kPage);
  EXPECT_EQ(ranges.allocate(kPage), 5 * kPage);
  EXPECT_FALSE(ranges.allocate(kPage));
}

TEST(RangeAllocator, HandsOutNoRetiredPage) {
  constexpr uint64_t kPage = RangeAllocator::kPage;
  RangeAllocator ranges(kPage, 4 * kPage);
  EXPECT_TRUE(ranges.retire(2 * kPage + 5));  // free: between two holes from now on
  EXPECT_FALSE(ranges.retire(2 * kPage));
  EXPECT_FALSE(ranges.retire(0));
  EXPECT_FALSE(ranges.retire(5 * kPage));
  EXPECT_EQ(ranges.retired(), kPage);
  EXPECT_EQ(ranges.used(), kPage);
  EXPECT_FALSE(ranges.allocate(3 * kPage));
  const auto two = ranges.allocate(2 * kPage);
  ASSERT_TRUE(two);
  EXPECT_EQ(*two, 3 * kPage);
  EXPECT_TRUE(ranges.retire(4 * kPage));  // taken: it goes when it is given back
  EXPECT_EQ(ranges.used(), 3 * kPage);
  ranges.free(*two);
  EXPECT_EQ(ranges.used(), 2 * kPage);
  EXPECT_EQ(ranges.allocate(kPage), kPage);
  EXPECT_EQ(ranges.allocate(kPage), 3 * kPage);
  EXPECT_FALSE(ranges.allocate(1));
  RangeAllocator small(kPage, kPage);
  const auto a = small.allocate(512);
  const auto b = small.allocate(512);
  EXPECT_TRUE(small.retire(kPage));  // two ranges share it
  EXPECT_FALSE(small.allocate(512));
  small.free(*a);
  small.free(*b);
  EXPECT_FALSE(small.allocate(512));
  EXPECT_EQ(small.used(), kPage);
}

TEST(RangeAllocator, TakesTheSmallestHoleThatFits) {
  RangeAllocator ranges(0, 64 * 512);
  const auto a = ranges.allocate(4 * 512);
  const auto b = ranges.allocate(512);
  const auto c = ranges.allocate(2 * 512);
  const auto d = ranges.allocate(512);
  ASSERT_TRUE(a && b && c && d);
  ranges.free(*a);
  ranges.free(*c);
  EXPECT_EQ(ranges.allocate(2 * 512), c);
  EXPECT_EQ(ranges.allocate(3 * 512), a);
}

// Ranges that were handed out once come back to their places, in any order.
TEST(RangeAllocator, TakesRangesWhereTheyWere) {
  RangeAllocator before(0, kMiB);
  std::map<uint64_t, uint64_t> ranges;
  for (const uint64_t bytes : std::initializer_list<uint64_t>{512, 5000, 65536, 1, 200000}) {
    ranges[*before.allocate(bytes)] = bytes;
  }
  RangeAllocator after(0, kMiB);
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    EXPECT_TRUE(after.take(range->first, range->second));
    EXPECT_FALSE(after.take(range->first, range->second)) << "it is taken";
  }
  EXPECT_EQ(after.used(), before.used());
  EXPECT_EQ(after.largest_hole(), before.largest_hole());
  EXPECT_EQ(after.allocate(3000), before.allocate(3000));
  EXPECT_FALSE(after.take(kMiB, 1));
  EXPECT_FALSE(after.take(kMiB - 512, 1024));
  EXPECT_FALSE(after.take(0, ~uint64_t{0}));
}

TEST(RangeAllocator, RefusesWhatDoesNotFitAndSurvives) {
  RangeAllocator ranges(0, kMiB);
  EXPECT_FALSE(ranges.allocate(kMiB + 1));
  EXPECT_FALSE(ranges.allocate(~uint64_t{0}));
  const auto all = ranges.allocate(kMiB);
  ASSERT_TRUE(all);
  EXPECT_FALSE(ranges.allocate(1));
  ranges.free(*all);
  EXPECT_EQ(ranges.largest_hole(), kMiB);
  ranges.free(12345);  // not handed out: ignored
  EXPECT_EQ(ranges.used(), 0u);
}

TEST(RangeAllocator, NeverOverlapsAndJoinsEverythingInTheEnd) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  RangeAllocator ranges(RangeAllocator::kPage, 16 * kMiB);
  std::map<uint64_t, uint64_t> taken;
  for (int i = 0; i < 20000; ++i) {
    if (taken.empty() || random() % 5 < 3) {
      const uint64_t bytes = random() % 3 == 0 ? random() % kMiB : random() % 4096;
      const auto at = ranges.allocate(bytes);
      if (!at) {
        continue;
      }
      const uint64_t size = RangeAllocator::rounded(bytes);
      EXPECT_GE(*at, RangeAllocator::kPage);
      EXPECT_LE(*at + size, RangeAllocator::kPage + 16 * kMiB);
      const auto next = taken.lower_bound(*at);
      ASSERT_TRUE(next == taken.end() || next->first >= *at + size);
      ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
      taken.emplace(*at, size);
    } else {
      auto victim = taken.begin();
      std::advance(victim, random() % taken.size());
      ranges.free(victim->first);
      taken.erase(victim);
    }
  }
  for (const auto& [at, size] : taken) {
    ranges.free(at);
  }
  EXPECT_EQ(ranges.used(), 0u);
  EXPECT_EQ(ranges.largest_hole(), 16 * kMiB);
}

}  // namespace
}  // namespace tpu::driver
