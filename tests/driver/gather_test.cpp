// State of a sharded update in front of a program that wants it whole: each run comes from the core
// that owns it, over the links, to every core. Programs that do nothing: results are the memory of
// their arguments.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/driver/error_code.hpp"
#include "tests/driver/program_builder.hpp"
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

std::vector<std::byte> program(bool owned) {
  ProgramBuilder builder(kCores);
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
    OpenOptions options;
    options.transport = GetParam();
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
  taker_.run({kept}, options).done.wait();
  for (int core = 0; core < kCores; ++core) {
    EXPECT_EQ(kept.parts()[static_cast<size_t>(core)].to_host().bytes, contents(core).bytes);
  }
  EXPECT_EQ(kept.to_host().bytes, by_owner());
}

TEST_P(Gather, AProgramThatKeepsTheSameRunsGathersNothing) {
  const Array again = keeper_.run({state()}).outputs[0];
  for (int core = 0; core < kCores; ++core) {
    EXPECT_EQ(again.parts()[static_cast<size_t>(core)].to_host().bytes, contents(core).bytes);
  }
}

TEST_P(Gather, PiecesOfTheStateComeFromTheirOwnersToo) {
  std::vector<std::byte> whole;
  state().read_pieces([&](std::span<const std::byte> piece) {
    whole.insert(whole.end(), piece.begin(), piece.end());
  });
  EXPECT_EQ(whole, by_owner());
}

INSTANTIATE_TEST_SUITE_P(Null, Gather, ::testing::Values("null"));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Gather, ::testing::Values("sim"));
#endif

}  // namespace
}  // namespace tpu::driver
