// Launches that hang on the simulated board, each in its way: what the error and the report file
// say of who waits for whom. The board goes on behind each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kOps =
    ".op \"gather\" file=\"model.py\" line=7\n.op \"scatter\" file=\"model.py\" line=9\n";

class SimHang : public ::testing::Test {
 protected:
  explicit SimHang(const std::vector<std::string>& overrides = {}, double seconds = 60)
      : overrides_(overrides),
        path_(::testing::TempDir() + "/hang_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    std::filesystem::remove(path_);
    OpenOptions options;
    options.overrides = overrides_;
    options.time_limit = seconds;
    options.hang_report = path_;
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& name, const std::string& code, int partitions) {
    const std::string text = ".program \"" + name + "\"\n.partitions " +
                             std::to_string(partitions) + "\n" + test::kCopySlots + kOps + code;
    const auto board = spec::load_board("v3_8", overrides_);
    return board_.load(exe::write_executable(compiler::assemble(text, "test.s", board)), 0);
  }
  // Runs a program that hangs, then a copy; `text_` and `json_` are what is said of it.
  void hang(const std::string& code, ErrorCode expected, int partitions = 1) {
    const Executable program = load("stuck", code, partitions);
    const HostArray sent = counting(DType::kI32, {1024});
    const auto error = program.run({program.put(0, sent)}).done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), expected) << error->what();
    text_ = error->message();
    const Executable good = load("copy", std::string(test::kCopyCommands) + "  halt\n", 1);
    EXPECT_EQ(good.run({good.put(0, sent)}).outputs[0].to_host().bytes, sent.bytes);
    std::ifstream file(path_);
    ASSERT_TRUE(file) << path_;
    json_ = nlohmann::json::parse(file);
    EXPECT_THAT(json_["launch"].get<std::string>(), HasSubstr("launch of stuck"));
    EXPECT_THAT(json_["harts"], SizeIs(8));
  }
  // "core 0 vpu" of each wait that the cycle names, in its order.
  std::vector<std::string> cycle() const {
    std::vector<std::string> units;
    for (const size_t i : json_["cycle"].get<std::vector<size_t>>()) {
      const nlohmann::json& wait = json_["waits"].at(i);
      units.push_back("core " + std::to_string(wait["core"].get<int>()) + " " +
                      wait["unit"].get<std::string>());
    }
    return units;
  }

  const std::vector<std::string> overrides_;
  const std::string path_;
  Board board_;
  std::string text_;
  nlohmann::json json_;
};

TEST_F(SimHang, ACircleOfEnginesIsNamedWithOperationsAndLines) {
  hang(
      "  vpu.nop op=0 wait=3:1:take signal=4:1\n"
      "  xlu.nop op=1 wait=4:1:take signal=3:1\n  halt\n",
      ErrorCode::kDeviceFault);
  EXPECT_THAT(text_,
              ::testing::ContainsRegex("DEADLOCK: nothing is in flight and the program is not done "
                                       "\\(cycle [1-9][0-9]*\\)"))
      << "a place without a statement";
  EXPECT_THAT(text_, HasSubstr("core 0 vpu (word 0, op 0 gather at model.py:7) waits for semaphore "
                               "3 >= 1 (is 0), which core 0 xlu (word 3, op 1 scatter at "
                               "model.py:9), the head of its queue, would signal"));
  EXPECT_THAT(text_, HasSubstr("they wait in a circle: core 0 vpu -> core 0 xlu -> core 0 vpu"));
  EXPECT_EQ(json_["hang"], "deadlock");
  EXPECT_THAT(cycle(), ::testing::ElementsAre("core 0 vpu", "core 0 xlu"));
  const nlohmann::json& vpu = json_["waits"].at(1);
  EXPECT_EQ(vpu["op"], "gather");
  EXPECT_EQ(vpu["source"], "model.py:7");
  EXPECT_EQ(vpu["waits_for"], "semaphore");
  EXPECT_EQ(vpu["semaphore"]["index"], 3);
  EXPECT_EQ(vpu["signalled_by"]["op"], "scatter");
  EXPECT_EQ(vpu["signalled_by"]["commands_in_front"], 0);
}

TEST_F(SimHang, AFullQueueIsPartOfTheCircle) {
  std::string code;
  for (int i = 0; i < 64; ++i) {  // more than a queue holds; the last would signal the first
    code += i == 0 ? "  vpu.nop op=0 wait=3:1:take\n" : "  vpu.nop op=0\n";
  }
  hang(code + "  xlu.nop op=1 signal=3:1\n  halt\n", ErrorCode::kDeviceFault);
  EXPECT_THAT(text_, HasSubstr("core 0 sequencer"));
  EXPECT_THAT(text_, HasSubstr("since queue vpu is full"));
  EXPECT_THAT(text_, HasSubstr("not issued yet, would signal"));
  EXPECT_THAT(cycle(), ::testing::UnorderedElementsAre("core 0 sequencer", "core 0 vpu"));
}

TEST_F(SimHang, ASignalThatNobodySendsIsNamed) {
  hang("  dma_out.nop op=1 wait=9:1:take\n  halt\n", ErrorCode::kDeviceFault);
  EXPECT_THAT(text_, HasSubstr("which no command ahead signals"));
  EXPECT_THAT(text_, HasSubstr("nothing signals semaphore 9 of core 0, for which dma_out waits"));
  EXPECT_THAT(json_["cycle"], SizeIs(0));
}

// Each core waits for the one before it in a ring.
TEST_F(SimHang, ACircleGoesThroughAllCores) {
  hang(
      "  rid r1\n  addi r2, r1, 1\n  li r3, 4\n  bne r2, r3, go\n  li r2, 0\ngo:\n"
      "  dma_remote.nop op=1 wait=5:1:take signal=5:1:r2\n  halt\n",
      ErrorCode::kDeviceFault, 4);
  EXPECT_THAT(cycle(), ::testing::UnorderedElementsAre("core 0 dma_remote", "core 1 dma_remote",
                                                       "core 2 dma_remote", "core 3 dma_remote"));
  EXPECT_THAT(text_, HasSubstr("core 0 dma_remote -> core 3 dma_remote -> core 2 dma_remote -> "
                               "core 1 dma_remote -> core 0 dma_remote"));
}

// Core 0 waits for a signal that core 3 would send behind a wait of its own.
TEST_F(SimHang, AChainEndsAtTheCoreThatNobodySignals) {
  hang(
      "  rid r1\n  li r2, 0\n  li r3, 3\n  beq r1, r3, last\n  bne r1, r0, end\n"
      "  vpu.nop op=0 wait=5:1:take\n  halt\n"
      "last:\n  dma_remote.nop op=1 wait=6:1:take signal=5:1:r2\nend:\n  halt\n",
      ErrorCode::kDeviceFault, 4);
  EXPECT_THAT(text_, HasSubstr("core 0 vpu (word "));
  EXPECT_THAT(text_, HasSubstr("which core 3 dma_remote (word "));
  EXPECT_THAT(text_,
              HasSubstr("nothing signals semaphore 6 of core 3, for which dma_remote waits"));
}

TEST_F(SimHang, TheControlHartHasABackTrace) {
  hang("  vpu.nop op=0 wait=3:1:take\n  halt\n", ErrorCode::kDeviceFault);
  EXPECT_THAT(text_, HasSubstr("the control hart of TPU:0 sleeps at "));
  EXPECT_THAT(text_, HasSubstr("main (main.c:"));
  EXPECT_THAT(text_, HasSubstr(", called by start (crt0.S:"));
  const auto trace = json_["harts"].at(0)["trace"].get<std::vector<std::string>>();
  ASSERT_GE(trace.size(), 2u);
  EXPECT_THAT(trace.back(), HasSubstr("start (crt0.S:"));
}

class SimHangWatchdog : public SimHang {
 protected:
  SimHangWatchdog() : SimHang({"mgmt.watchdog_us=50"}) {}
};

// Queues are dropped when a watchdog ends a launch: what is told is from before.
TEST_F(SimHangWatchdog, ASequencerThatOnlyCountsIsToldWithTheQueuesThatWait) {
  hang(
      "  xlu.nop op=1 wait=7:1:take\n  li r3, 1\n  markb 0\nturn:\n  addi r3, r3, 1\n  jmp turn\n"
      "  halt\n",
      ErrorCode::kDeviceFault);
  EXPECT_THAT(text_, HasSubstr("WATCHDOG"));
  EXPECT_THAT(text_, HasSubstr("core 0 xlu (word 0, op 1 scatter at model.py:9) waits for "
                               "semaphore 7 >= 1 (is 0)"));
  EXPECT_EQ(json_["hang"], "watchdog");
}

// Each core is a board.
class SimHangPod : public SimHang {
 protected:
  SimHangPod()
      : SimHang({"board.chips=1", "board.torus_x=1", "board.cores_per_chip=1", "pod.boards_x=4",
                 "pod.boards_y=2", "mgmt.watchdog_us=20"}) {}
};

TEST_F(SimHangPod, AWatchdogAsksTheOtherBoards) {
  hang(
      "  rid r1\n  bne r1, r0, other\n  li r3, 1\nturn:\n  addi r3, r3, 1\n  jmp turn\n"
      "other:\n  xlu.nop op=1 wait=7:1:take\n  halt\n",
      ErrorCode::kDeviceFault, 4);
  EXPECT_THAT(text_, HasSubstr("WATCHDOG"));
  EXPECT_THAT(text_, HasSubstr("core 3 xlu (word "));
  EXPECT_EQ(json_["hang"], "watchdog");
}

// The watchdogs of all cores end the launch, each on its own; the first of them tells of all.
TEST_F(SimHangPod, TheFirstOfSeveralWatchdogsTells) {
  hang("  xlu.nop op=1 wait=7:1:take\n  li r3, 1\nturn:\n  addi r3, r3, 1\n  jmp turn\n",
       ErrorCode::kDeviceFault, 4);
  EXPECT_THAT(text_, HasSubstr("WATCHDOG"));
  for (int core = 0; core < 4; ++core) {
    EXPECT_THAT(text_, HasSubstr("core " + std::to_string(core) + " xlu (word "));
  }
  EXPECT_EQ(json_["hang"], "watchdog");
}

// Core 0 waits nine watchdogs long for a core of another board, which works.
TEST_F(SimHangPod, ACoreIsNotStuckWhileAnotherBoardWorks) {
  const Executable program =
      load("waits",
           std::string("  rid r1\n  li r2, 0\n  bne r1, r0, other\n  swait r5, r0, 1\n") +
               test::kCopyCommands + "  halt\nother:\n  li r3, 400\nturn:\n" +
               "  dma_in.dma op=0 signal=6:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 "
               "counts=[1,1,1,1,1024] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]\n"
               "  swait r6, r0, 1\n  addi r3, r3, -1\n  bne r3, r0, turn\n"
               "  dma_remote.nop op=1 signal=5:1:r2\n  halt\n",
           2);
  const HostArray sent = counting(DType::kI32, {1024});
  const RunResult result = program.run({program.put(0, sent)});
  const auto error = result.done.wait_for_error();
  EXPECT_EQ(error, nullptr) << error->what();
  EXPECT_GT(board_.run_cycles().at(0), 9u * 20 * 940);
}

class SimHangLivelock : public SimHang {
 protected:
  SimHangLivelock() : SimHang({"mgmt.watchdog_us=20", "mgmt.step_watchdogs=3"}) {}
};

// Two cores hand one count to and fro: each always has a signal under way, none ever ends.
TEST_F(SimHangLivelock, CoresThatOnlyAnswerEachOtherAreTold) {
  hang(
      "  rid r1\n  li r2, 0\n  bne r1, r0, turn\n  li r2, 1\n"
      "  dma_remote.nop op=0 signal=5:1:r2\nturn:\n"
      "  dma_remote.nop op=1 wait=5:1:take signal=5:1:r2\n  jmp turn\n  halt\n",
      ErrorCode::kDeviceFault, 2);
  EXPECT_THAT(text_, HasSubstr("WATCHDOG"));
  EXPECT_THAT(text_, HasSubstr("the step does not end"));
  EXPECT_THAT(text_, HasSubstr("op 1 scatter at model.py:9) waits for semaphore 5 >= 1"));
  EXPECT_EQ(json_["hang"], "watchdog");
}

// Whoever waits for a command that is on its way is no part of a circle: the loop goes on.
TEST_F(SimHangLivelock, ACommandOnItsWayEndsNoCircle) {
  const std::string transfer =
      "  dma_in.dma op=0 signal=5:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,1024] "
      "src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]\n";
  hang("turn:\n" + transfer + "  vpu.nop op=1 wait=5:1:take signal=6:1\n  swait r6, r0, 1\n" +
           "  jmp turn\n  halt\n",
       ErrorCode::kDeviceFault);
  EXPECT_THAT(text_, HasSubstr("the step does not end"));
  EXPECT_THAT(text_, HasSubstr("core 0 vpu (word "));
  EXPECT_THAT(text_, HasSubstr("which core 0 dma_in (word "));
  EXPECT_THAT(text_, HasSubstr("the head of its queue, would signal"));
  EXPECT_THAT(text_, ::testing::Not(HasSubstr("they wait in a circle")));
  EXPECT_THAT(cycle(), ::testing::IsEmpty());
}

class SimHangLimit : public SimHang {
 protected:
  SimHangLimit() : SimHang({"mgmt.watchdog_us=4000000"}, 0.5) {}
};

TEST_F(SimHangLimit, ALaunchThatOnlyLoopsIsToldWhenItsTimeIsOver) {
  hang("  xlu.nop op=1 wait=7:1:take\nturn:\n  jmp turn\n  halt\n", ErrorCode::kTimeout);
  EXPECT_THAT(text_, HasSubstr("completed no step in"));
  EXPECT_THAT(text_, HasSubstr("no limit): step 0, sequencer at word "));
  EXPECT_THAT(text_, HasSubstr("core 0 xlu"));
  EXPECT_EQ(json_["hang"], "time limit");
}

TEST(SimHangFile, WhatCannotBeWrittenIsSaid) {
  OpenOptions options;
  options.hang_report = ::testing::TempDir() + "/no_such_folder/hang.json";
  Board board = Board::open(options);
  const std::string text = std::string(".program \"stuck\"\n.partitions 1\n") + test::kCopySlots +
                           "  vpu.nop wait=3:1:take\n  halt\n";
  const Executable program = board.load(
      exe::write_executable(compiler::assemble(text, "test.s", spec::load_board("v3_8"))), 0);
  const auto error =
      program.run({program.put(0, counting(DType::kI32, {1024}))}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_THAT(error->message(),
              HasSubstr("hang.json: cannot be written: No such file or directory"));
  board.close();
}

}  // namespace
}  // namespace tpu::driver
