// Values by core and their reductions on the host, on the null board.
#include "tpu/per_replica.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/driver/null_board.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

template <typename Number>
HostArray array_of(DType dtype, const std::vector<Number>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {dtype, {static_cast<int64_t>(values.size())}, {bytes.begin(), bytes.end()}};
}

template <typename Number>
std::vector<Number> values_of(const HostArray& array) {
  std::vector<Number> values(array.bytes.size() / sizeof(Number));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

TEST(PerReplica, EachCoreHasItsPart) {
  const test::NullBoard null;
  const HostArray numbers =
      array_of<float>(DType::kF32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  const auto parts = per_replica(null.board.shard(numbers));
  ASSERT_EQ(parts.size(), 8u);
  EXPECT_EQ(values_of<float>(parts[3]), (std::vector<float>{6, 7}));
  EXPECT_EQ(values_of<float>(reduce(Reduction::kSum, parts)), (std::vector<float>{56, 64}));
  EXPECT_EQ(values_of<float>(reduce(Reduction::kMean, parts)), (std::vector<float>{7, 8}));
  EXPECT_EQ(values_of<float>(reduce(Reduction::kMin, parts)), (std::vector<float>{0, 1}));
  EXPECT_EQ(values_of<float>(reduce(Reduction::kMax, parts)), (std::vector<float>{14, 15}));
  const auto copies = per_replica(null.board.replicate(numbers));
  EXPECT_EQ(copies.size(), 8u);
  EXPECT_EQ(copies[7].bytes, numbers.bytes);
}

// ((2^24 + 1) + 1) is 2^24 in f32; another order would give 2^24 + 2.
TEST(PerReplica, SumsInTheOrderOfTheCores) {
  const PerReplica<HostArray> values({array_of<float>(DType::kF32, {16777216.0f}),
                                      array_of<float>(DType::kF32, {1.0f}),
                                      array_of<float>(DType::kF32, {1.0f})});
  EXPECT_EQ(values_of<float>(reduce(Reduction::kSum, values))[0], 16777216.0f);
}

TEST(PerReplica, IntegersWrapAndMeansRoundToZero) {
  const int32_t most = std::numeric_limits<int32_t>::max();
  const PerReplica<HostArray> values(
      {array_of<int32_t>(DType::kI32, {most, -3}), array_of<int32_t>(DType::kI32, {1, 0})});
  EXPECT_EQ(values_of<int32_t>(reduce(Reduction::kSum, values)),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min(), -3}));
  EXPECT_EQ(values_of<int32_t>(reduce(Reduction::kMean, values))[1], -1);
}

TEST(PerReplica, RefusesWhatDoesNotBelongTogether) {
  const HostArray two = array_of<float>(DType::kF32, {1, 2});
  const auto refused = [](std::vector<HostArray> values) {
    try {
      reduce(Reduction::kSum, PerReplica<HostArray>(std::move(values)));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({}), "reduce: expected at least one value, found 0");
  EXPECT_EQ(refused({two, array_of<float>(DType::kF32, {1})}),
            "reduce: one core has f32[1], another f32[2]");
  EXPECT_EQ(refused({array_of<uint8_t>(DType::kU8, {1})}),
            "reduce: f32 or i32 is expected, not ui8");
}

}  // namespace
}  // namespace tpu::driver
