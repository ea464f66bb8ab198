// State of a sharded update: each core holds some runs of it, and whoever reads, copies or takes
// one core's buffer gets every run from the core that owns it. Programs that do nothing: results
// are the memory of their arguments.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/driver/error_code.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;
using test::ProgramBuilder;

constexpr int kCores = 8;
constexpr int64_t kElements = 1000;
const std::vector<uint64_t> kRuns = {3, 500, 1, 250, 246};
const std::vector<uint8_t> kOwners = {5, 0, 7, 3, 0};

std::vector<std::byte> program(bool owned, uint32_t cores = kCores) {
  ProgramBuilder builder(cores);
  builder.argument(DType::kI32, {kElements});
  builder.result(DType::kI32, {kElements}, false, 0);
  if (owned) {
    for (exe::TensorT* tensor : {builder.exe().args[0].get(), builder.exe().results[0].get()}) {
      tensor->owned_elements = kRuns;
      tensor->owned_by = kOwners;
    }
  }
  return builder.bytes();
}

HostArray contents(int core) {
  return counting(DType::kI32, {kElements}, static_cast<uint8_t>(10 * core + 1));
}

class Gather : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenOptions options = test::open_options(GetParam());
    board_ = Board::open(options);
    keeper_ = board_.load(program(true));
    taker_ = board_.load(program(false));
  }
  void TearDown() override { board_.close(); }

  // What the program that keeps runs leaves, with contents of its own on each core.
  Array state() const {
    std::vector<Buffer> parts;
    for (int core = 0; core < kCores; ++core) {
      parts.push_back(board_.put(core, contents(core)));
    }
    const ParameterInfo& info = keeper_.arguments()[0];
    return keeper_.run({Array(info.dtype, info.shape, info.layout, parts)}).outputs[0];
  }

  static std::vector<uint64_t> addresses(const Array& array) {
    std::vector<uint64_t> all;
    for (const Buffer& part : array.parts()) {
      all.push_back(part.address());
    }
    return all;
  }

  static std::vector<std::byte> by_owner() {
    std::vector<std::byte> whole;
    for (size_t run = 0; run < kRuns.size(); ++run) {
      const std::vector<std::byte> bytes = contents(kOwners[run]).bytes;
      const auto first = bytes.begin() + static_cast<ptrdiff_t>(whole.size());
      whole.insert(whole.end(), first, first + static_cast<ptrdiff_t>(kRuns[run] * 4));
    }
    return whole;
  }

  Board board_;
  Executable keeper_;
  Executable taker_;
};

TEST_P(Gather, EveryCoreGetsEachRunFromItsOwner) {
  const Array kept = state();
  const RunResult whole = taker_.run({kept});
  for (const Buffer& part : whole.outputs[0].parts()) {
    EXPECT_EQ(part.to_host().bytes, by_owner()) << part.device();
  }
  for (const Buffer& part : kept.parts()) {
    EXPECT_FALSE(part.live());
    EXPECT_EQ(code_of([&] { part.to_host(); }), ErrorCode::kFailedPrecondition);
  }
}

TEST_P(Gather, StateThatIsKeptStaysAsItLies) {
  const Array kept = state();
  RunOptions options;
  options.keep = {0};
  const Array copy = taker_.run({kept}, options).outputs[0];
  EXPECT_EQ(copy.to_host().bytes, by_owner());
  EXPECT_EQ(kept.to_host().bytes, by_owner());
}

TEST_P(Gather, AProgramThatKeepsTheSameRunsGathersNothing) {
  const Array kept = state();
  const auto before = addresses(kept);
  const uint64_t ranges = board_.devices()[0].hbm_ranges_ever;
  const Array again = keeper_.run({kept}).outputs[0];
  EXPECT_EQ(addresses(again), before);
  EXPECT_EQ(board_.devices()[0].hbm_ranges_ever, ranges);
  EXPECT_EQ(again.to_host().bytes, by_owner());
}

TEST_P(Gather, EachPartReadAloneIsWhole) {
  const Array kept = state();
  for (const Buffer& part : kept.parts()) {
    EXPECT_EQ(part.to_host().bytes, by_owner()) << part.device();
  }
}

TEST_P(Gather, APartIsWholeWhenTheOthersAreGone) {
  const uint64_t before = board_.devices()[5].hbm_used;
  const Buffer last = [&] {
    const Array kept = state();
    for (int core = 1; core < kCores; ++core) {
      kept.parts()[static_cast<size_t>(core)].discard();
    }
    EXPECT_EQ(code_of([&] { kept.parts()[5].to_host(); }), ErrorCode::kFailedPrecondition);
    return kept.parts()[0];
  }();
  EXPECT_EQ(last.to_host().bytes, by_owner());
  last.discard();
  board_.synchronize();
  EXPECT_EQ(board_.devices()[5].hbm_used, before);
}

TEST_P(Gather, ACopyOnAnyCoreIsWhole) {
  const Array kept = state();
  const Buffer there = board_.copy(kept.parts()[2], 6);
  const Buffer here = board_.clone(kept.parts()[2]);
  keeper_.run({kept}).done.wait();
  EXPECT_EQ(there.to_host().bytes, by_owner());
  EXPECT_EQ(here.to_host().bytes, by_owner());
}

TEST_P(Gather, AProgramOfOneCoreTakesAPartAndLeavesTheOthers) {
  const Executable single = board_.load(program(false, 1), {3});
  const Array kept = state();
  const ParameterInfo& info = single.arguments()[0];
  const RunResult result =
      single.run({Array(info.dtype, info.shape, info.layout, {kept.parts()[3]})});
  EXPECT_EQ(result.outputs[0].parts()[0].to_host().bytes, by_owner());
  EXPECT_FALSE(kept.parts()[3].live());
  EXPECT_EQ(kept.parts()[5].to_host().bytes, by_owner());
}

// The memory of a state that is not given away as a whole must not be written: what is left of it
// is read there.
TEST_P(Gather, PartsOfTwoStatesAreNotTakenAsTheyLie) {
  const Array one = state();
  const Array other = state();
  std::vector<Buffer> mixed = one.parts();
  mixed[5] = other.parts()[5];
  const auto before = addresses(one);
  const Array result =
      keeper_.run({Array(one.dtype(), one.shape(), one.layout(), mixed)}).outputs[0];
  const auto after = addresses(result);
  for (size_t core = 0; core < kCores; ++core) {
    EXPECT_NE(after[core], before[core]) << core;
    EXPECT_EQ(result.parts()[core].to_host().bytes, by_owner()) << core;
  }
  EXPECT_EQ(one.parts()[5].to_host().bytes, by_owner());
  EXPECT_EQ(other.parts()[0].to_host().bytes, by_owner());
}

TEST_P(Gather, PiecesOfTheStateComeFromTheirOwnersToo) {
  std::vector<std::byte> whole;
  state().read_pieces([&](std::span<const std::byte> piece) {
    whole.insert(whole.end(), piece.begin(), piece.end());
  });
  EXPECT_EQ(whole, by_owner());
}

INSTANTIATE_TEST_SUITE_P(Null, Gather, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Gather, ::testing::ValuesIn(test::sim_boards()));
#endif

}  // namespace
}  // namespace tpu::driver
