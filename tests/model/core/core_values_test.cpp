// What probes learn of values: the first NaN and infinity among the results of a command, and that
// a unit differs from what it is compared with. Looked for only while somebody listens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "core_bench.hpp"
#include "tpu/spec/rings.h"

namespace tpu::model::test {
namespace {

using spec::Queue;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kQuietNan = 0x7FC0'0000;

class ValueSink final : public ProbeSink {
 public:
  void non_finite(const NonFiniteEvent& event) override { found.push_back(event); }
  void assertion(const AssertionEvent& event) override {
    differs.emplace_back(event.path);
    cycles.push_back(event.cycle);
  }
  // Word of the command, address, bits.
  std::vector<std::array<uint64_t, 3>> places() const {
    std::vector<std::array<uint64_t, 3>> list;
    for (const NonFiniteEvent& event : found) {
      list.push_back({event.source.pc, event.address, event.bits});
    }
    return list;
  }
  std::vector<NonFiniteEvent> found;
  std::vector<std::string> differs;
  std::vector<uint64_t> cycles;
};

// Counts a difference in each command.
class DifferingEngine final : public MxuEngine {
 public:
  void run(const MxuJob& /*job*/) override { ++mismatches_; }
  const char* name() const override { return "differing"; }
  bool splittable() const override { return false; }
  uint64_t mismatches() const override { return mismatches_; }

 private:
  uint64_t mismatches_ = 0;
};

constexpr int64_t kLhs = 0, kRhs = 0x1000, kOut = 0x2000, kSums = 0x3000, kCopy = 0x4000;
constexpr uint32_t kSize = 8;

// out = lhs * rhs; copy = |sums|, which the vector unit makes.
ProgramBuilder two_commands() {
  ProgramBuilder p;
  p.matmul(Queue::kMxu0, kOut, kLhs, kRhs, kSize, kSize, kSize, Sync().signal(1));
  p.unary_kernel(spec::VpuOp::kAbsF, kSums, kCopy, 40, Sync().wait(1));
  p.halt();
  return p;
}

void run_with(CoreBench& bench, const std::vector<float>& lhs, const std::vector<float>& sums,
              uint8_t code = 0) {
  bench.write(0, CoreBench::kVmem, kLhs, lhs);
  bench.write(0, CoreBench::kVmem, kRhs, std::vector<float>(kSize * kSize, 1.0F));
  bench.write(0, CoreBench::kVmem, kSums, sums);
  bench.load(0, two_commands().image(), 0, 1);
  bench.start(0);
  bench.run();
  ASSERT_EQ(bench.fault_record(0).code, code);
}

TEST(CoreValues, TheFirstNanAndInfinityOfACommandAreTold) {
  CoreBench bench("values", {.overrides = {"board.chips=2"}, .threads = 4});
  ValueSink values;
  bench.probes.add(values, {ProbeEvent::kNonFinite});
  std::vector<float> lhs(kSize * kSize, 1.0F);
  std::vector<float> sums(40, -2.0F);
  run_with(bench, lhs, sums);
  EXPECT_THAT(values.places(), IsEmpty());
  lhs[3 * kSize] = -kInfinity;  // row 3 of the result
  sums[7] = kInfinity;
  sums[9] = -kInfinity;
  sums[30] = std::bit_cast<float>(kQuietNan);
  run_with(bench, lhs, sums);
  const std::vector<std::array<uint64_t, 3>> places = values.places();
  ASSERT_EQ(places.size(), 3U);
  EXPECT_THAT(places[0], ElementsAre(0, kOut + 3 * 4 * kSize, 0xFF80'0000));
  EXPECT_THAT(places[1], ElementsAre(places[1][0], kCopy + 4 * 30, kQuietNan));
  EXPECT_THAT(places[2], ElementsAre(places[1][0], kCopy + 4 * 7, 0x7F80'0000));
  EXPECT_TRUE(values.found[1].nan);
  EXPECT_FALSE(values.found[2].nan);
  // With the results, at the cycle at which they are there.
  EXPECT_EQ(values.found[0].cycle, bench.traced(0, Queue::kMxu0, 1).cycle);
  EXPECT_EQ(values.found[1].cycle, bench.traced(0, Queue::kVpu, 1).cycle);
}

TEST(CoreValues, NobodyIsToldOfIntegersOrOfOtherCores) {
  NonFiniteScan scan;
  const std::vector<uint32_t> words(16, kQuietNan);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  spec::StridePattern pattern(4, 4);
  pattern.add(3, 8);
  scan.add(bytes, pattern, spec::Elem::kI32);
  EXPECT_FALSE(scan.nan());
  scan.add(bytes, pattern, spec::Elem::kBf16);  // its lower halves are 0
  ASSERT_TRUE(scan.nan());
  EXPECT_EQ(scan.nan()->address, 6U);
  EXPECT_EQ(scan.nan()->bits, kQuietNan);
  CoreBench bench("others", {.overrides = {"board.chips=2"}});
  ValueSink values;
  bench.probes.add(values, {ProbeEvent::kNonFinite}, core_bit(1));
  run_with(bench, std::vector<float>(kSize * kSize, kInfinity), std::vector<float>(40));
  EXPECT_THAT(values.places(), IsEmpty());
}

TEST(CoreValues, AUnitThatDiffersIsToldWhenItsCommandIsDone) {
  CoreBench bench("differs",
                  {.overrides = {"board.chips=2"},
                   .make_engine = [](const std::string& path) -> std::unique_ptr<MxuEngine> {
                     return path.ends_with("core0.mxu0") ? std::make_unique<DifferingEngine>()
                                                         : nullptr;
                   }});
  ValueSink values;
  bench.probes.add(values, {ProbeEvent::kAssertion});
  run_with(bench, std::vector<float>(kSize * kSize), std::vector<float>(40),
           TPU_FAULT_RTL_MISMATCH);
  EXPECT_EQ(bench.fault_record(0).pc, 0U);
  EXPECT_THAT(values.differs, ElementsAre("differs.core0.mxu0"));
  EXPECT_THAT(values.cycles, ElementsAre(bench.traced(0, Queue::kMxu0).cycle));
}

TEST(CoreValues, DifferencesOfOtherVerilogAreToldBesideTheReport) {
  std::vector<std::string> said;
  const VerilogUse use =
      also_telling({.mode = VerilogMode::kLockstep,
                    .differs = [&](const std::string& text) { said.push_back(text); }},
                   [&] { said.emplace_back("told"); });
  use.differs("granule 3");
  EXPECT_THAT(said, ElementsAre("granule 3", "told"));
  EXPECT_FALSE(also_telling({}, [] {}).differs);
}

}  // namespace
}  // namespace tpu::model::test
