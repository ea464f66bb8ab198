// Options of the simulation that change while the board is open: times of operations, waves, trace,
// the engines of matrix units. What does not change: bits, cycles, what cannot be changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/error_code.hpp"
#include "tests/driver/null_board.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::code_of;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kCommands = R"(
.op "copy" file="model.py" line=7
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma op=0 wait=0:1:take src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  halt
)";

class SimChange : public ::testing::Test {
 protected:
  SimChange() : board_(Board::open({})) {
    const std::string text =
        ".program \"copies\"\n.partitions 1\n" + std::string(test::kCopySlots) + kCommands;
    program_ = board_.load(
        exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
    x_ = program_.put(0, test::counting(DType::kI32, {1024}));
  }
  void TearDown() override { board_.close(); }

  // Cycles of a launch.
  uint64_t launch() {
    const uint64_t before = board_.run_cycles()[0];
    program_.run({x_}).done.wait();
    return board_.run_cycles()[0] - before;
  }
  void change(void (*what)(SimOptions& sim)) {
    SimOptions sim = board_.sim();
    what(sim);
    board_.change_sim(sim);
  }
  static std::string file(const std::string& name) { return ::testing::TempDir() + "/" + name; }
  static size_t lines_of(const std::string& path) {
    std::ifstream stream(path);
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(stream), {}, '\n'));
  }

  Board board_;
  Executable program_;
  Array x_;
};

TEST_F(SimChange, CyclesOfOperationsSumToTheRunTime) {
  const uint64_t alone = launch();
  EXPECT_THAT(board_.op_times(), IsEmpty());
  change([](SimOptions& sim) { sim.op_times = true; });
  EXPECT_EQ(launch(), alone) << "counting costs no cycle";
  EXPECT_EQ(launch(), alone);
  const std::vector<OpTime> times = board_.op_times();
  ASSERT_THAT(times, SizeIs(2));
  EXPECT_EQ(times[0].program, "copies");
  EXPECT_EQ(times[0].op, "copy");
  EXPECT_EQ(times[0].source, "model.py:7");
  EXPECT_EQ(times[0].commands, 4U);
  EXPECT_GT(times[0].cycles, alone);
  EXPECT_LE(times[0].cycles, times[0].busy_cycles);
  EXPECT_EQ(times[1].op, "");
  EXPECT_EQ(times[1].commands, 0U);
  EXPECT_EQ(times[0].cycles + times[1].cycles, 2 * alone);
  change([](SimOptions& sim) { sim.op_times = false; });
  launch();
  EXPECT_EQ(board_.op_times()[0].commands, 4U) << "counted no more, but still there";
  change([](SimOptions& sim) { sim.op_times = true; });
  EXPECT_THAT(board_.op_times(), IsEmpty());
}

TEST_F(SimChange, TraceAndWavesBeginAndEnd) {
  const uint64_t alone = launch();
  change([](SimOptions& sim) {
    sim.trace_path = file("change.txt");
    sim.waves_path = file("change.fst");
    sim.waves_steps = UINT64_MAX;
  });
  EXPECT_EQ(launch(), alone);
  change([](SimOptions& sim) {
    sim.trace_path.clear();
    sim.waves_path.clear();
  });
  EXPECT_EQ(lines_of(file("change.txt")), 2U) << "complete, and of one launch";
  EXPECT_GT(std::filesystem::file_size(file("change.fst")), 0U);
  EXPECT_EQ(launch(), alone);
  EXPECT_EQ(lines_of(file("change.txt")), 2U);
}

TEST_F(SimChange, WavesThatShowNothingAreToldWhenTheyEnd) {
  launch();
  change([](SimOptions& sim) { sim.waves_path = file("nothing.fst"); });  // of step 0
  launch();
  change([](SimOptions& sim) { sim.trace_path = file("other.txt"); });  // the waves stay
  const auto end = [&] { change([](SimOptions& sim) { sim.waves_path.clear(); }); };
  EXPECT_EQ(code_of(end), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(board_.sim().waves_path, IsEmpty()) << "and are off";
  launch();
}

TEST_F(SimChange, LockstepGoesOnAndOff) {
  const uint64_t alone = launch();
  change([](SimOptions& sim) { sim.mxu = {{"board.chip0.core0.mxu0", "lockstep"}}; });
  EXPECT_EQ(launch(), alone);
  const auto end = [&] { change([](SimOptions& sim) { sim.mxu.clear(); }); };
  EXPECT_EQ(code_of(end), ErrorCode::kFailedPrecondition) << "it has compared nothing";
  EXPECT_THAT(board_.sim().mxu, IsEmpty()) << "and is off";
  EXPECT_EQ(launch(), alone);
}

TEST_F(SimChange, WhatCannotBeFollowedChangesNothing) {
  const auto refused = [&](void (*what)(SimOptions & sim)) {
    return code_of([&] { change(what); });
  };
  EXPECT_EQ(refused([](SimOptions& sim) { sim.threads = 3; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](SimOptions& sim) { sim.check = true; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](SimOptions& sim) {
              sim.mxu = {{"board.chip9.*", "lockstep"}};
              sim.op_times = true;
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](SimOptions& sim) {
              sim.trace_path = "/nowhere/trace.txt";
              sim.mxu = {{"board.*", "lockstep"}};
            }),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(board_.sim().op_times);
  EXPECT_THAT(board_.sim().mxu, IsEmpty());
  launch();
  EXPECT_THAT(board_.op_times(), IsEmpty());
  EXPECT_EQ(board_.counters().lockstep_tiles, 0U);
  const test::NullBoard null;
  EXPECT_EQ(code_of([&] { null.board.change_sim({}); }), ErrorCode::kUnimplemented);
}

}  // namespace
}  // namespace tpu::driver
