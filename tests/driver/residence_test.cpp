// Programs in memory: loading without waiting, on which devices, and more of them than the board
// has program ids or memory for.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/driver/worker_process.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using test::counting;
using test::hbm_used;
using test::NullBoard;
using test::passing;
using test::ProgramBuilder;

constexpr int kProgramIds = 64;
using Devices = std::vector<int>;

std::shared_ptr<const exe::ExecutableT> in_memory(ProgramBuilder builder) {
  return std::make_shared<exe::ExecutableT>(exe::read_executable(builder.bytes()));
}

RunResult run_on(const Executable& program, const HostArray& sent) {
  return program.run({program.put(0, sent)});
}

class Residence : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OpenOptions options = test::open_options(GetParam());
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  const HostArray sent_ = counting(DType::kI32, {16});
  Board board_;
};

TEST_P(Residence, OneExecutableInMemoryRunsOnEveryDevice) {
  const auto one = in_memory(passing(1));
  for (const int device : {7, 0, 3}) {
    const Executable program = board_.load(one, {device});
    EXPECT_EQ(program.devices(), Devices{device});
    const RunResult result = run_on(program, sent_);
    EXPECT_EQ(result.outputs[0].parts()[0].device(), device);
    EXPECT_EQ(result.outputs[0].to_host().bytes, sent_.bytes);
  }
  const auto two = in_memory(passing(2));
  const Executable gang = board_.load(two, {});
  EXPECT_EQ(gang.devices(), (Devices{0, 1}));
  EXPECT_EQ(run_on(gang, sent_).outputs[0].to_host_checked("pair").bytes, sent_.bytes);
  EXPECT_EQ(board_.load(passing(2).bytes(), Devices{0, 1}).partitions(), 2u);
}

TEST_P(Residence, DevicesThatDoNotFitAreRefused) {
  const auto one = in_memory(passing(1));
  const auto two = in_memory(passing(2));
  const auto refused = [&](const auto& executable, const Devices& devices) {
    return code_of([&] { board_.load(executable, devices); }) == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(one, {0, 1}));
  EXPECT_TRUE(refused(one, {8}));
  EXPECT_TRUE(refused(one, {-1}));
  EXPECT_TRUE(refused(two, {0}));
  EXPECT_TRUE(refused(two, {1, 0}));
  EXPECT_TRUE(refused(two, {2, 3}));
  EXPECT_TRUE(refused(std::shared_ptr<const exe::ExecutableT>(), {0}));
  EXPECT_TRUE(refused(std::vector<std::byte>(100), {0}));
  EXPECT_EQ(hbm_used(board_), std::vector<uint64_t>(8, 0));
}

TEST_P(Residence, AGangRunsOnTheCoresForWhichItWasCompiled) {
  ProgramBuilder builder = passing(2);
  builder.exe().cores = {6, 3};
  const auto pair = in_memory(std::move(builder));
  const Executable program = board_.load(pair, {});
  EXPECT_EQ(program.devices(), (Devices{6, 3}));
  EXPECT_EQ(board_.load(pair, {6, 3}).devices(), program.devices());
  const RunResult result = run_on(program, sent_);
  EXPECT_EQ(result.outputs[0].parts()[0].device(), 6);
  EXPECT_EQ(result.outputs[0].to_host_checked("pair").bytes, sent_.bytes);
  EXPECT_EQ(code_of([&] { board_.load(pair, {3, 6}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { board_.load(pair, {0, 1}); }), ErrorCode::kInvalidArgument);
}

TEST_P(Residence, MoreProgramsThanIdsComeAndGo) {
  const auto one = in_memory(passing(1));
  const auto gang = in_memory(passing(8));
  std::vector<Executable> programs;
  for (int i = 0; i < 2 * kProgramIds; ++i) {
    programs.push_back(i % 9 == 0 ? board_.load(gang, {}) : board_.load(one, {5}));
  }
  for (int round = 0; round < 2; ++round) {
    std::vector<Array> outputs;
    for (const Executable& program : programs) {
      outputs.push_back(run_on(program, sent_).outputs[0]);
    }
    for (const Array& output : outputs) {
      ASSERT_EQ(output.to_host_checked("output").bytes, sent_.bytes);
    }
  }
  programs.clear();
  board_.synchronize();
  EXPECT_EQ(hbm_used(board_), std::vector<uint64_t>(8, 0));
}

TEST_P(Residence, ProgramsMakeRoomInMemoryForOthersAndForArrays) {
  std::vector<Executable> programs;
  for (int i = 0; i < 4; ++i) {
    ProgramBuilder builder = passing(1);
    builder.scratch(uint64_t{5} << 30);
    programs.push_back(board_.load(in_memory(std::move(builder)), {2}));
  }
  for (int round = 0; round < 2; ++round) {
    for (const Executable& program : programs) {
      ASSERT_EQ(run_on(program, sent_).outputs[0].to_host().bytes, sent_.bytes);
    }
  }
  const Buffer large = board_.zeros(2, DType::kU8, {int64_t{12} << 30});
  EXPECT_EQ(code_of([&] { run_on(programs[0], sent_); }), ErrorCode::kResourceExhausted);
  large.discard();
  EXPECT_EQ(run_on(programs[0], sent_).outputs[0].to_host().bytes, sent_.bytes);
}

TEST_P(Residence, LaunchesThatAreNotOverKeepTheirProgram) {
  const auto one = in_memory(passing(1));
  const HostEvent gate = board_.make_event();
  std::vector<Executable> programs;
  std::vector<Array> outputs;
  for (int i = 0; i < kProgramIds; ++i) {
    programs.push_back(board_.load(one, {1}));
    const Array argument = programs.back().put(0, sent_);
    outputs.push_back(programs.back()
                          .run({argument}, {.steps = 1, .keep = {}, .after = {gate.event()}})
                          .outputs[0]);
  }
  const std::vector<uint64_t> before = hbm_used(board_);
  EXPECT_EQ(code_of([&] { board_.load(in_memory(passing(8)), {}); }),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(hbm_used(board_), before);
  gate.set();
  // Their ids come back one by one as they end.
  for (int i = 0; i < 3; ++i) {
    programs.push_back(board_.load(one, {1}));
    outputs.push_back(run_on(programs.back(), sent_).outputs[0]);
  }
  for (const Array& output : outputs) {
    ASSERT_EQ(output.to_host().bytes, sent_.bytes);
  }
}

// What comes back has its constants again, though their memory was somebody else's meanwhile.
TEST(NullResidence, ConstantsComeBackWithTheirProgram) {
  const NullBoard n;
  std::vector<uint8_t> seen;
  n.null->executor = [&](NullLaunch& launch) -> std::optional<tpu_fault_record_t> {
    const NullLaunchPart& part = launch.parts[0];
    std::array<std::byte, 4> bytes{};
    part.hbm->read(part.slots.back().base, bytes);
    seen.push_back(static_cast<uint8_t>(bytes[3]));
    return std::nullopt;
  };
  std::vector<Executable> programs;
  std::vector<uint8_t> expected;
  for (int i = 0; i < kProgramIds + 6; ++i) {
    ProgramBuilder builder = passing(1);
    builder.constant(std::vector<uint8_t>(1000, static_cast<uint8_t>(i)));
    programs.push_back(n.board.load(in_memory(std::move(builder)), {0}));
    expected.push_back(static_cast<uint8_t>(i));
  }
  for (const Executable& program : programs) {
    run_on(program, counting(DType::kI32, {16})).done.wait();
  }
  EXPECT_EQ(seen, expected);
}

TEST(NullResidence, ALoadThatFailsFailsItsLaunchAndIsTriedAgain) {
  const NullBoard n;
  const HostArray sent = counting(DType::kI32, {16});
  const auto gang = in_memory(passing(8));
  const Executable other = n.board.load(gang, {});
  const Array argument = other.put(0, sent);
  n.board.synchronize();
  n.null->corrupt_entries = 1 << 20;
  const Executable program = n.board.load(gang, {});  // does not wait, so it does not know
  const RunResult lost = program.run({argument});
  n.board.synchronize();
  n.null->corrupt_entries = 0;
  const auto error = lost.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kInternal) << error->what();
  EXPECT_EQ(program.run({argument}).outputs[0].to_host().bytes, sent.bytes);
}

INSTANTIATE_TEST_SUITE_P(Null, Residence, ::testing::ValuesIn(test::null_boards()));
#ifdef TPU_HAVE_SIM_TRANSPORT
INSTANTIATE_TEST_SUITE_P(Sim, Residence, ::testing::ValuesIn(test::sim_boards()));
#endif

}  // namespace
}  // namespace tpu::driver
