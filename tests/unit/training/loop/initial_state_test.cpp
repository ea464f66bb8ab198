// Rules of initial values: ranges and spread by shape, bits by index, what is refused.
#include "loop/initial_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "numbers/bf16.hpp"
#include "numbers/random.hpp"
#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

using training::bf16_from_f32;
using training::Init;
using training::initial_leaf;
using training::InitKind;
using training::RandomPurpose;
using training::RandomStream;

constexpr uint64_t kStateSeed = 11;

std::vector<float> values_of(const HostArray& array) {
  EXPECT_TRUE(array.dtype == DType::kF32 || array.dtype == DType::kC64);
  std::vector<float> values(array.bytes.size() / sizeof(float));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

std::vector<float> glorot(const Shape& shape, size_t leaf = 0) {
  return values_of(
      initial_leaf({InitKind::kGlorotUniform, {}}, DType::kF32, shape, kStateSeed, leaf));
}

// All inside of the limit, close to it on both sides, and with the variance limit^2 / 3.
void expect_uniform(const std::vector<float>& values, double limit) {
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  double square = 0;
  float least = values[0];
  float most = values[0];
  for (const float x : values) {
    mean += static_cast<double>(x) / count;
    square += static_cast<double>(x) * static_cast<double>(x) / count;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_LE(static_cast<double>(most), limit);
  EXPECT_GE(static_cast<double>(least), -limit);
  EXPECT_GT(static_cast<double>(most), limit * (1 - 20 / count));
  EXPECT_LT(static_cast<double>(least), -limit * (1 - 20 / count));
  // Five standard errors of a uniform distribution.
  EXPECT_NEAR(mean, 0, 5 * limit / std::sqrt(3 * count));
  EXPECT_NEAR(square, limit * limit / 3, 5 * limit * limit * std::sqrt(4.0 / 45 / count));
}

TEST(GlorotUniform, TakesItsLimitFromTheFansOfTheShape) {
  expect_uniform(glorot({300, 100}), std::sqrt(6.0 / 400));
  expect_uniform(glorot({3, 3, 16, 64}), std::sqrt(6.0 / (9 * (16 + 64))));
  expect_uniform(glorot({3, 3, 1, 256}), std::sqrt(6.0 / (9 * (1 + 256))));
  expect_uniform(glorot({5, 20, 80}), std::sqrt(6.0 / (5 * (20 + 80))));
  expect_uniform(glorot({5000}), std::sqrt(6.0 / 10000));
  EXPECT_LE(std::fabs(glorot({})[0]), std::sqrt(3.0f));
  EXPECT_TRUE(glorot({0, 4}).empty());
}

TEST(GlorotUniform, IsTheDocumentedFunctionOfItsStream) {
  const std::vector<float> values = glorot({2, 4}, 5);
  const RandomStream stream(kStateSeed, RandomPurpose::kState, 5);
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = stream.uniform(i);  // limit = sqrt(6 / 6) = 1
    EXPECT_EQ(values[i], static_cast<float>(2 * u - 1)) << i;
  }
  EXPECT_NE(glorot({2, 4}, 6), values);
}

TEST(InitialLeaf, ConstantsOfAnyType) {
  const auto leaf = [](double value, DType dtype) {
    return initial_leaf({InitKind::kConstant, {}, value}, dtype, {2}, kStateSeed, 3);
  };
  EXPECT_EQ(values_of(leaf(0.1, DType::kF32)), std::vector<float>(2, 0.1f));
  const HostArray counts = leaf(-70000, DType::kI64);
  int64_t second = 0;
  std::memcpy(&second, counts.bytes.data() + sizeof(second), sizeof(second));
  EXPECT_EQ(second, -70000);
  EXPECT_THROW(leaf(-70000, DType::kI16), Error);
  EXPECT_THROW(leaf(0.5, DType::kI32), Error);
  EXPECT_THROW(leaf(2, DType::kI1), Error);
  EXPECT_THROW(leaf(-1, DType::kU8), Error);
  EXPECT_EQ(leaf(255, DType::kU8).bytes[1], std::byte{255});
  EXPECT_EQ(values_of(leaf(0.5, DType::kC64)), (std::vector<float>{0.5f, 0, 0.5f, 0}));
  EXPECT_THROW(leaf(1e300, DType::kC64), Error);
  EXPECT_EQ(values_of(initial_leaf({InitKind::kOnes, {}}, DType::kC64, {2}, kStateSeed, 0)),
            (std::vector<float>{1, 0, 1, 0}));
}

TEST(InitialLeaf, NothingBecomesInfiniteSilently) {
  const auto leaf = [](InitKind kind, double value, DType dtype) {
    return initial_leaf({kind, {}, value}, dtype, {2}, kStateSeed, 3);
  };
  EXPECT_EQ(values_of(leaf(InitKind::kConstant, 3.4e38, DType::kF32))[1], 3.4e38f);
  EXPECT_THROW(leaf(InitKind::kConstant, 1e300, DType::kF32), Error);
  EXPECT_THROW(leaf(InitKind::kConstant, -3.41e38, DType::kF32), Error);
  EXPECT_THROW(leaf(InitKind::kNormal, 1e300, DType::kF32), Error);
  EXPECT_NO_THROW(leaf(InitKind::kConstant, 3.38e38, DType::kBf16));
  EXPECT_THROW(leaf(InitKind::kConstant, 3.4e38, DType::kBf16), Error);  // rounds up
}

TEST(InitialLeaf, NormalHasTheDeviationThatIsGiven) {
  const std::vector<float> values =
      values_of(initial_leaf({InitKind::kNormal, {}, 0.02}, DType::kF32, {20000}, kStateSeed, 3));
  double square = 0;
  for (const float x : values) {
    square += static_cast<double>(x) * static_cast<double>(x);
  }
  // Five standard errors of a variance.
  EXPECT_NEAR(square / 20000, 0.0004, 5 * 0.0004 * std::sqrt(2.0 / 20000));
}

TEST(InitialLeaf, RoundsToBf16AndRefusesIntegers) {
  const Init rule{InitKind::kGlorotUniform, {}};
  const HostArray half = initial_leaf(rule, DType::kBf16, {2, 4}, kStateSeed, 5);
  const std::vector<float> values = glorot({2, 4}, 5);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, half.bytes.data() + 2 * i, sizeof bits);
    EXPECT_EQ(bits, bf16_from_f32(values[i]));
  }
  for (const InitKind kind : {InitKind::kGlorotUniform, InitKind::kHeNormal}) {
    EXPECT_THROW(initial_leaf({kind, {}}, DType::kI32, {2, 4}, kStateSeed, 0), Error);
  }
  EXPECT_EQ(values_of(initial_leaf({InitKind::kOnes, {}}, DType::kF32, {2}, kStateSeed, 0)),
            (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace tpu::driver
