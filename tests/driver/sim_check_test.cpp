// Findings of the happens-before checker as a user of the driver reads them: both commands with
// operations and source lines, and the command that shows them again. Seeded schedules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using ::testing::HasSubstr;

constexpr const char* kRace = R"(
.op "load" file="model.py" line=7
.op "store" file="model.py" line=9
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma op=1 src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  swait r0, r0, 1
  halt
)";

class SimCheck : public ::testing::Test {
 protected:
  void open(uint64_t seed, bool no_data = false) {
    OpenOptions options;
    options.sim.check = true;
    options.sim.no_data = no_data;
    options.sim.schedule_seed = seed;
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& code) {
    const std::string text =
        ".program \"racing\"\n.partitions 1\n" + std::string(test::kCopySlots) + code;
    return board_.load(
        exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
  }
  void run(const std::string& code, int launches) {
    const Executable program = load(code);
    const Array x = program.put(0, counting(DType::kI32, {1024}));
    for (int i = 0; i < launches; ++i) {
      program.run({x}).done.wait();
    }
  }
  Board board_;
};

TEST_F(SimCheck, AFindingNamesBothCommandsAndHowToSeeItAgain) {
  open(40);
  run(test::kCopyCommands + std::string("  halt\n"), 2);
  EXPECT_EQ(board_.counters().check_findings, 0u);
  run(kRace, 1);
  const BoardCounters counters = board_.counters();
  EXPECT_GE(counters.check_findings, 1u);
  EXPECT_THAT(counters.check_text,
              HasSubstr("step 2: core 0 dma_in (word 0, op 0 load at model.py:7) overwrites, "
                        "without waiting for it, what is read by core 0 dma_out (word 21, op 1 "
                        "store at model.py:9): bytes 0..4095 of VMEM of core 0"));
  EXPECT_THAT(counters.check_text,
              HasSubstr("again, with the program saved as racing.tpuexe: tpuboard run "
                        "racing.tpuexe --check --no-data --schedule-seed 42\n"));
}

TEST_F(SimCheck, WhatTheLineAboveSaysShowsItAgain) {
  open(42, true);
  run(kRace, 1);
  EXPECT_THAT(board_.counters().check_text,
              HasSubstr("step 0: core 0 dma_in (word 0, op 0 load at model.py:7) overwrites"));
}

// A count that nobody takes ends the launch; the checker says whose it is.
TEST_F(SimCheck, ACountThatNobodyTakesIsNamed) {
  open(0);
  const Executable program =
      load(".op \"late\" file=\"model.py\" line=5\n  xlu.nop op=0 signal=4:1\n  halt\n");
  const auto error =
      program.run({program.put(0, counting(DType::kI32, {1024}))}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_THAT(error->message(), HasSubstr("SEM_NONZERO_AT_END"));
  EXPECT_THAT(error->message(),
              HasSubstr("core 0 xlu (word 0, op 0 late at model.py:5) signals what nobody "
                        "takes: semaphore 4 of core 0, which is 1"));
  EXPECT_THAT(error->message(), testing::Not(HasSubstr("run it with SimOptions::check")));
}

// The checker keeps a hundred findings. Behind them it has nothing to say, and is on all the same.
TEST_F(SimCheck, AFaultWithoutFindingsDoesNotAskForTheCheckerThatIsOn) {
  open(0);
  run(kRace, 100);
  EXPECT_GE(board_.counters().check_findings, 100u);
  const Executable program = load("  xlu.nop signal=4:1\n  halt\n");
  const auto error =
      program.run({program.put(0, counting(DType::kI32, {1024}))}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_THAT(error->message(), HasSubstr("SEM_NONZERO_AT_END"));
  EXPECT_THAT(error->message(), testing::Not(HasSubstr("the checker says")));
  EXPECT_THAT(error->message(), testing::Not(HasSubstr("SimOptions::check")));
}

}  // namespace
}  // namespace tpu::driver
