// Operands that are packed once for several jobs: parts of a command on threads of their own, and
// commands in flight at the same time. The bits are those of the reference on every instruction set
// of the host and on the emulated ones, and each byte is packed once.
#include "mxu/mxu_packed.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "kernel/host_profile.hpp"
#include "mxu_same_bits.hpp"

namespace tpu::model {
namespace {

using test::OwnedJob;
using test::Values;

uint64_t amount(HostWork kind) {
  HostProfile::enable();
  return HostProfile::read()[static_cast<size_t>(kind)].amount;
}

// Bytes that were packed, left out and packed again since.
class Packing {
 public:
  uint64_t packed() const { return amount(HostWork::kMxuPack) - packed_; }
  uint64_t left_out() const { return amount(HostWork::kMxuShared) - left_out_; }
  uint64_t again() const { return amount(HostWork::kMxuAgain) - again_; }

 private:
  uint64_t packed_ = amount(HostWork::kMxuPack);
  uint64_t left_out_ = amount(HostWork::kMxuShared);
  uint64_t again_ = amount(HostWork::kMxuAgain);
};

std::vector<uint32_t> reference(const OwnedJob& owned) {
  std::vector<uint32_t> wanted = owned.out;
  MxuScalarEngine(spec::MxuShape{}).run(owned.on(wanted));
  return wanted;
}

void run_on_threads(MxuEngine& engine, const std::vector<MxuJob>& jobs) {
  std::vector<std::thread> threads;
  for (const MxuJob& job : jobs) {
    threads.emplace_back([&engine, &job] { engine.run(job); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void expect_same_in_parts(const OwnedJob& owned, const std::string& what) {
  const std::vector<uint32_t> wanted = reference(owned);
  for (const test::KernelSet& set : test::kernel_sets()) {
    MxuFastEngine engine(spec::MxuShape{}, set.kernels);
    for (const bool columns : {false, true}) {
      std::vector<uint32_t> got = owned.out;
      const MxuJob job = owned.on(got);
      std::vector<MxuJob> parts =
          columns ? mxu_split_columns(job, 4, 16) : mxu_split_rows(job, 4, 16);
      MxuPackedUse use;
      use.begin(parts, false, false);
      run_on_threads(engine, parts);
      ASSERT_EQ(got, wanted) << what << ", " << set.name << (columns ? ", columns" : ", rows");
    }
  }
}

TEST(MxuPacked, DenseOperandsInParts) {
  for (const bool bf16 : {false, true}) {
    OwnedJob owned =
        test::packed_job({.rows = 150, .k = 1100, .n = 300, .lhs_bf16 = bf16, .rhs_bf16 = !bf16}, 1,
                         Values::kSpecial);
    expect_same_in_parts(owned, "weights");
    test::transpose_rhs(owned);
    expect_same_in_parts(owned, "weights transposed");
  }
}

// Of at most 64 rows a part, with short K blocks.
TEST(MxuPacked, FewRowsInParts) {
  expect_same_in_parts(
      test::packed_job({.rows = 40, .k = 1300, .n = 200, .accumulate = true}, 2, Values::kNormal),
      "few rows");
}

TEST(MxuPacked, WindowsInParts) {
  for (const bool bf16 : {false, true}) {
    const test::WindowShape window{.side = 12, .channels = 64, .out = 128, .bf16 = bf16};
    expect_same_in_parts(test::window_job(window, 3, Values::kNormal), "windows");
  }
}

// Some parts skip zeros and others do not.
TEST(MxuPacked, PartsOfManyZeros) {
  OwnedJob owned = test::packed_job({.rows = 400, .k = 640, .n = 256}, 4, Values::kNormal);
  std::fill_n(owned.lhs.begin(), owned.lhs.size() / 2, uint8_t{0});
  expect_same_in_parts(owned, "zeros");
}

TEST(MxuPacked, StridesOfAllKindsInParts) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    expect_same_in_parts(test::strided_job(seed, Values::kSpecial), "seed " + std::to_string(seed));
  }
}

TEST(MxuPacked, PartsPackEachByteOnce) {
  const OwnedJob owned = test::packed_job({.rows = 256, .k = 640, .n = 512}, 5, Values::kNormal);
  for (const test::KernelSet& set : test::kernel_sets()) {
    if (set.kernels == nullptr) {
      continue;
    }
    MxuFastEngine engine(spec::MxuShape{}, set.kernels);
    std::vector<uint32_t> out = owned.out;
    const Packing whole;
    engine.run(owned.on(out));
    const uint64_t once = whole.packed();
    for (const bool columns : {false, true}) {
      std::vector<MxuJob> parts =
          columns ? mxu_split_columns(owned.on(out), 4, 64) : mxu_split_rows(owned.on(out), 4, 64);
      ASSERT_EQ(parts.size(), 4u);
      MxuPackedUse use;
      use.begin(parts, false, false);
      const Packing in_parts;
      run_on_threads(engine, parts);
      EXPECT_EQ(in_parts.packed(), once) << set.name;
      EXPECT_EQ(in_parts.left_out(), 3 * (columns ? owned.lhs.size() : owned.rhs.size()))
          << set.name;
      EXPECT_EQ(in_parts.again(), 0u) << set.name;
    }
  }
}

// Commands in flight share what is held, until the last of them is done.
TEST(MxuPacked, CommandsInFlightShareWhatIsHeld) {
  OwnedJob owned = test::packed_job({.rows = 30, .k = 256, .n = 128}, 6, Values::kNormal);
  MxuFastEngine engine(spec::MxuShape{}, mxu_kernels(base::host_simd().back()));
  if (!engine.shares_operands()) {
    GTEST_SKIP() << "the host has no AVX2";
  }
  std::vector<uint32_t> out = owned.out;
  const auto run = [&](MxuPackedUse& use, bool held) {
    MxuJob job = owned.on(out);
    use.begin({&job, 1}, held, held);
    engine.run(job);
  };
  const uint64_t both = owned.lhs.size() + owned.rhs.size();
  {
    const Packing packing;
    MxuPackedUse first;
    MxuPackedUse second;
    MxuPackedUse other;
    run(first, true);
    EXPECT_EQ(packing.packed(), both);
    run(second, true);
    EXPECT_EQ(packing.packed(), both);
    EXPECT_EQ(packing.left_out(), both);
    run(other, false);  // of VMEM, which others may write
    EXPECT_EQ(packing.packed(), 2 * both);
    EXPECT_EQ(out, reference(owned));
  }
  // Other values in the same place.
  std::mt19937_64 rng(7);
  test::fill(owned.rhs, false, rng, Values::kNormal);
  MxuPackedUse use;
  const Packing packing;
  run(use, true);
  EXPECT_EQ(packing.packed(), both);
  EXPECT_EQ(out, reference(owned));
}

// More than 16 MiB are packed by each part for itself, and counted.
TEST(MxuPacked, LargeOperandsArePackedAgain) {
  const OwnedJob owned = test::packed_job({.rows = 2, .k = 4096, .n = 4096}, 8, Values::kNormal);
  MxuFastEngine engine(spec::MxuShape{}, mxu_kernels(base::host_simd().back()));
  if (!engine.shares_operands()) {
    GTEST_SKIP() << "the host has no AVX2";
  }
  std::vector<uint32_t> out = owned.out;
  std::vector<MxuJob> parts = mxu_split_rows(owned.on(out), 2);
  MxuPackedUse use;
  use.begin(parts, false, false);
  const Packing packing;
  run_on_threads(engine, parts);
  EXPECT_EQ(packing.again(), owned.rhs.size());
  EXPECT_EQ(packing.left_out(), 0u);
  EXPECT_EQ(out, reference(owned));
}

}  // namespace
}  // namespace tpu::model
