// The semantics of a column against sums written out by hand, its padding rule, and both orders of
// sums.
#include "arith/mxu_column.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "arith/flush_mode.hpp"
#include "operands.hpp"

namespace tpu::spec {
namespace {

constexpr MxuShape kDefault{};
constexpr MxuShape kSerial{.sums = MxuSums::kSerial};
constexpr uint16_t kOne = 0x3f80;

TEST(MxuColumn, AddsEvenAndOddChainsOfASegmentBeforeTheRunningValue) {
  // Even rows: 1, 2^-30, -1; the chain loses 2^-30 (1 + 2^-30 rounds to 1) and ends at 0. Odd rows:
  // 2^-20.
  const std::vector<uint16_t> w{bf16_from_f32(1.0f), bf16_from_f32(0x1p-20f),
                                bf16_from_f32(0x1p-30f), 0, bf16_from_f32(-1.0f)};
  const std::vector<uint16_t> x(w.size(), kOne);
  const uint32_t sum = mxu_column_bits(kDefault, w.data(), x.data(), w.size(), f32_bits(3.0f));
  EXPECT_EQ(sum, f32_bits(3.0f + 0x1p-20f));
}

TEST(MxuColumn, SegmentsRoundOneByOne) {
  // 2^24 + 1 rounds back to 2^24 in each of two segments; in one chain 1 + 1 = 2 would count.
  std::vector<uint16_t> w(64, 0);
  w[0] = kOne;
  w[32] = kOne;
  const std::vector<uint16_t> x(64, kOne);
  EXPECT_EQ(mxu_column_bits(kDefault, w.data(), x.data(), 64, f32_bits(0x1p24f)),
            f32_bits(0x1p24f));
  EXPECT_EQ(mxu_column_bits(kSerial, w.data(), x.data(), 64, f32_bits(0x1p24f)),
            f32_bits(0x1p24f + 2.0f));
}

TEST(MxuColumn, PaddingAddsPlusZero) {
  const uint16_t minus_one = 0xbf80;
  const uint16_t zero = 0;
  // -0 as running value and a product of -0: every segment adds +0, so +0 comes out.
  EXPECT_EQ(mxu_column_bits(kDefault, &minus_one, &zero, 1, kF32SignMask), 0u);
  EXPECT_EQ(mxu_column_bits(kDefault, nullptr, nullptr, 0, kF32SignMask), 0u);
  EXPECT_EQ(mxu_column_bits(kDefault, nullptr, nullptr, 0, 1u), 0u);  // a subnormal running value
}

TEST(MxuColumn, PaddedOperandsGiveTheSameBits) {
  test::OperandSource source(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint16_t> w(128, 0);
    std::vector<uint16_t> x(128, 0);
    const size_t k = source.next() % 129;
    for (size_t i = 0; i < k; ++i) {
      w[i] = source.next_bf16();
      x[i] = source.next_bf16();
    }
    const uint32_t running = source.next();
    for (const MxuShape& shape : {kDefault, kSerial}) {
      EXPECT_EQ(mxu_column_bits(shape, w.data(), x.data(), k, running),
                mxu_column_bits(shape, w.data(), x.data(), 128, running));
    }
  }
}

// The interpreter's sums: of any K, in host floats, as the tiles of the matrix unit one by one.
TEST(MxuColumn, HostFloatsGiveTheSameBits) {
  const ScopedFlushMode flush;
  test::OperandSource source(11);
  for (int round = 0; round < 3000; ++round) {
    const size_t k = source.next() % 400;
    std::vector<uint16_t> w(k), x(k);
    std::vector<float> wide_w(k), wide_x(k);
    for (size_t i = 0; i < k; ++i) {
      const bool zero = source.next() % 4 == 0;  // also -0
      w[i] = zero ? static_cast<uint16_t>(source.next() & 0x8000u) : source.next_bf16();
      x[i] = source.next_bf16();
      wide_w[i] = f32_from_bits(bf16_to_f32_bits(w[i]));
      wide_x[i] = f32_from_bits(bf16_to_f32_bits(x[i]));
    }
    for (const MxuShape& shape : {kDefault, kSerial}) {
      uint32_t running = 0;
      for (size_t tile = 0; tile < k; tile += shape.rows) {
        running = mxu_column_bits(shape, w.data() + tile, x.data() + tile,
                                  std::min<size_t>(shape.rows, k - tile), running);
      }
      EXPECT_EQ(f32_bits(mxu_sum(shape, wide_w.data(), wide_x.data(), k)), running) << "K " << k;
    }
  }
}

TEST(MxuShape, NamesTheOrdersThatBoardFilesSay) {
  EXPECT_EQ(mxu_sums(2, 32, 128), MxuSums::kPairs);
  EXPECT_EQ(mxu_sums(1, 128, 128), MxuSums::kSerial);
  EXPECT_FALSE(mxu_sums(2, 64, 128));
  EXPECT_FALSE(mxu_sums(1, 32, 128));
  EXPECT_EQ(kSerial.segments(), 1u);
  EXPECT_EQ(kDefault.segments(), 4u);
}

}  // namespace
}  // namespace tpu::spec
