// Orders: permutations that depend on seed and epoch alone, shuffled within the buffer's reach,
// shards without an overlap.
#include "input/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "arrays.hpp"

namespace tpu::input {
namespace {

std::vector<uint32_t> epoch_of(Order& order, uint32_t epoch) {
  order.begin(epoch);
  std::vector<uint32_t> examples;
  for (uint64_t i = 0; i < order.count(); ++i) {
    examples.push_back(order.next());
  }
  return examples;
}

std::vector<uint32_t> first_numbers(uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

TEST(InputOrder, TakesEachExampleOnceWhateverTheShuffle) {
  for (const uint64_t shuffle : std::vector<uint64_t>{0, 1, 7, 100, 5000, kShuffleAll}) {
    Order order({.seed = 3, .shuffle = shuffle}, 100);
    std::vector<uint32_t> examples = epoch_of(order, 2);
    EXPECT_EQ(examples == first_numbers(100), shuffle <= 1) << shuffle;
    EXPECT_EQ(epoch_of(order, 2), examples) << shuffle;
    EXPECT_EQ(epoch_of(order, 3) == examples, shuffle <= 1) << shuffle;
    Order other({.seed = 4, .shuffle = shuffle}, 100);
    EXPECT_EQ(epoch_of(other, 2) == examples, shuffle <= 1) << shuffle;
    std::sort(examples.begin(), examples.end());
    EXPECT_EQ(examples, first_numbers(100)) << shuffle;
  }
}

TEST(InputOrder, BufferReachesItsLengthAheadAndNoFurther) {
  Order order({.seed = 1, .shuffle = 10}, 1000);
  const std::vector<uint32_t> examples = epoch_of(order, 0);
  for (uint32_t i = 0; i < examples.size(); ++i) {
    ASSERT_LT(examples[i], i + 10);
  }
  order.begin(0);
  order.next();
  EXPECT_EQ(order.entered(), 10u);
}

TEST(InputOrder, EachPlaceOfAFullShuffleIsAsLikely) {
  // 6 orders of 3 examples, 600 epochs: each about 100 times, deviation 9.
  std::map<std::vector<uint32_t>, int> seen;
  Order order({.seed = 9, .shuffle = kShuffleAll}, 3);
  for (uint32_t epoch = 0; epoch < 600; ++epoch) {
    ++seen[epoch_of(order, epoch)];
  }
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [examples, times] : seen) {
    EXPECT_NEAR(times, 100, 45);
  }
}

TEST(InputOrder, SkipsAsItWouldGive) {
  for (const uint64_t shuffle : std::vector<uint64_t>{0, 9, kShuffleAll}) {
    Order order({.seed = 5, .shuffle = shuffle}, 50);
    const std::vector<uint32_t> examples = epoch_of(order, 1);
    order.begin(1);
    order.skip(20);
    EXPECT_EQ(order.next(), examples[20]) << shuffle;
    order.skip(10);
    EXPECT_EQ(order.next(), examples[31]) << shuffle;
  }
}

TEST(InputOrder, ShardsShareTheExamplesWithoutOverlap) {
  std::vector<uint32_t> all;
  for (uint32_t shard = 0; shard < 4; ++shard) {
    Order order({.seed = 5, .shuffle = 6, .shard = shard, .shards = 4}, 30);
    EXPECT_EQ(order.count(), shard < 2 ? 8u : 7u);
    EXPECT_EQ(order.smallest_shard(), 7u);
    for (const uint32_t example : epoch_of(order, 0)) {
      EXPECT_EQ(example % 4, shard);
      all.push_back(example);
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, first_numbers(30));
}

TEST(InputOrder, TakesChosenExamplesOnly) {
  Order order({.shuffle = 3, .examples = std::vector<uint32_t>{20, 4, 9}}, 30);
  std::vector<uint32_t> examples = epoch_of(order, 0);
  std::sort(examples.begin(), examples.end());
  EXPECT_EQ(examples, (std::vector<uint32_t>{4, 9, 20}));
  EXPECT_EQ(order.entered(), std::nullopt);
  // Chosen ones in the order in which they are stored can be read ahead.
  Order sorted({.shuffle = 2, .examples = std::vector<uint32_t>{4, 9, 20}}, 30);
  sorted.begin(0);
  EXPECT_EQ(sorted.entered(), 0u);
  sorted.next();
  EXPECT_EQ(sorted.entered(), 10u);
  sorted.next();
  EXPECT_EQ(sorted.entered(), 21u);
}

TEST(InputOrder, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(error_of([] { Order({.shard = 4, .shards = 4}, 10); }),
            "shard 4 of 4: shards count from 0, up to one less than there are");
  EXPECT_EQ(error_of([] { Order({.shards = 0}, 10); }),
            "shard 0 of 0: shards count from 0, up to one less than there are");
  EXPECT_EQ(error_of([] { Order({.examples = std::vector<uint32_t>{10}}, 10); }),
            "example 10 is selected, but the input has only 10, numbered from 0");
  EXPECT_EQ(error_of([] { Order({}, uint64_t{1} << 32); }),
            "4294967296 examples; at most 2^32 - 1 can be put in an order");
}

}  // namespace
}  // namespace tpu::input
