// What a run shows of itself, as a user asks for it at the command line: each view alone, all of
// them together, and with other numbers of host threads are the same to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "exe/executable.hpp"
#include "format/npy.hpp"
#include "tests/cli/command_line_fixture.hpp"
#include "tests/driver/program_builder.hpp"
#include "tests/support/fst_reader.hpp"

namespace tpu::driver {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Copies its argument to its result through VMEM, twice, inside marks. The second copy into
// VMEM does not wait for the reader of the first: --check has something to say.
constexpr const char* kRacing = R"(
.program "racing"
.slot argument bytes=256
.slot result bytes=256
.arg "x" elem=i32 global=[64] slot=0
.result "y" elem=i32 global=[64] slot=1
.op "copy" file="model.py" line=42
  markb 0
  dma_in.dma op=0 signal=0:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_out.dma op=0 wait=0:1:take src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  dma_in.dma op=0 signal=1:1 src=hbm[0]+0 dst=vmem+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  marke 0
  dma_out.dma op=0 wait=1:1:take src=vmem+0 dst=hbm[1]+0 elem_bytes=4 counts=[1,1,1,1,64] src_strides=[0,0,0,0,4] dst_strides=[0,0,0,0,4]
  halt
)";

class ProbeSinks : public test::CommandLineFixture {
 protected:
  void SetUp() override {
    CommandLineFixture::SetUp();
    write_npy(path("x.npy"), test::counting(DType::kI32, {64}));
    save(kRacing);
  }

  void save(const std::string& text, const std::string& board = "v3_8") const {
    const std::vector<std::byte> bytes =
        exe::write_executable(compiler::assemble(text, "p.s", spec::load_board(board)));
    std::ofstream(path("p.tpuexe"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  // Both streams of the run; its files are FILE.txt, FILE.fst.
  std::string run(const std::string& options) const {
    return test::call(std::string(TPUBOARD) + " run " + path("p.tpuexe") +
                      " --in 0=" + path("x.npy") + " --launches 2 " + options)
        .text;
  }
  std::string trace(const std::string& file) const { return " --trace " + path(file + ".txt"); }
  std::string waves(const std::string& file) const {
    return " --waves " + path(file + ".fst") + " --waves-steps 0..1";
  }
  std::string bytes(const std::string& file) const {
    std::ifstream stream(path(file), std::ios::binary);
    std::string content(std::istreambuf_iterator<char>(stream), {});
    if (file.ends_with(".fst") && content.size() > kDate + kDateBytes) {
      content.erase(kDate, kDateBytes);
    }
    return content;
  }

  // The header of an FST file holds the time of day.
  static constexpr size_t kDate = 200;
  static constexpr size_t kDateBytes = 27;
};

TEST_F(ProbeSinks, AllTogetherGiveWhatEachGivesAlone) {
  const std::string plain = run("");
  EXPECT_EQ(run(trace("alone")), plain);
  EXPECT_EQ(run(waves("alone")), plain);
  const std::string checked = run("--check");
  EXPECT_THAT(checked, HasSubstr("core 0 dma_out (word"));
  EXPECT_THAT(checked, HasSubstr("reads, without waiting for it, what is written by"));
  EXPECT_EQ(run("--check" + trace("all") + waves("all")), checked);
  EXPECT_THAT(bytes("alone.txt"), HasSubstr("dma_out dma op=0"));
  EXPECT_THAT(bytes("alone.txt"), HasSubstr("mark end op=0"));
  EXPECT_EQ(bytes("all.txt"), bytes("alone.txt"));
  EXPECT_GT(bytes("alone.fst").size(), 500U);
  EXPECT_EQ(bytes("all.fst"), bytes("alone.fst"));
}

TEST_F(ProbeSinks, EventsDoNotDependOnTheHost) {
  const std::string one = run("--check --threads 1" + trace("one") + waves("one"));
  EXPECT_EQ(run("--check --threads 3 --simd scalar" + trace("three") + waves("three")), one);
  EXPECT_EQ(bytes("three.txt"), bytes("one.txt"));
  EXPECT_EQ(bytes("three.fst"), bytes("one.fst"));
}

TEST_F(ProbeSinks, TimelinesOfPodsNameTheBoards) {
  const std::string timeline = "--timeline " + path("t.pftrace");
  run(timeline);
  EXPECT_THAT(bytes("t.pftrace"), Not(HasSubstr("board 0")));  // there is one
  save(kRacing, "v3_32");
  run("--board v3_32 " + timeline);
  for (const char* board : {"board 0", "board 1", "board 2", "board 3"}) {
    EXPECT_THAT(bytes("t.pftrace"), HasSubstr(board));
  }
  EXPECT_THAT(bytes("t.pftrace"), Not(HasSubstr("board 4")));
}

TEST_F(ProbeSinks, WhatIsNotWrittenIsToldInOneOrder) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "this system has no /dev/full";
  }
  const std::string text =
      run("--timeline /dev/full --record " + path("r.tpurec") + " --record-step 9");
  const size_t timeline = text.find("writing /dev/full failed");
  const size_t record = text.find("record: nothing was recorded");
  ASSERT_NE(record, std::string::npos) << text;
  EXPECT_LT(timeline, record) << text;
}

TEST_F(ProbeSinks, WavesOfNothingAreToldWhy) {
  const std::string file = "--waves " + path("w.fst");
  EXPECT_THAT(run(file + " --waves-scope board.chip9.core0"),
              HasSubstr("--waves-scope board.chip9.core0: matches no instance of this board; like "
                        "it are board.chip0.core0"));
  EXPECT_THAT(run(file + " --waves-scope board.chip0.core0.mxu0.rtl"),
              HasSubstr("--waves-scope board.chip0.core0.mxu0.rtl: mxu0 does not run as Verilog; "
                        "add --mxu 'board.chip0.core0.mxu0=rtl'"));
  EXPECT_THAT(run(file + " --mxu board.chip0.core0.mxu0=rtl"
                         " --waves-scope board.chip0.core0.mxu0.rtl.y_out"),
              HasSubstr("mxu0.rtl.y_out: matches no instance of this board; like it are "
                        "board.chip0.core0.mxu0.rtl.y"));
  EXPECT_THAT(run(file + " --waves-trigger assertion"),
              HasSubstr("--waves-trigger assertion: no unit runs as Verilog, so that no assertion "
                        "can fail; choose units by --mxu or --verilog: GLOB=rtl or GLOB=lockstep"));
  EXPECT_THAT(run(file + " --waves-trigger assertion --verilog board.*.sem=rtl"),
              HasSubstr("the trigger assertion never came"));
  EXPECT_THAT(run(file + " --waves-trigger stop"),
              HasSubstr("--waves-trigger stop: expected step=N"));
}

TEST_F(ProbeSinks, WavesBeginAtSourceLinesAndFirmware) {
  const std::string plain = run("");
  const auto begin = [&](const std::string& trigger) {
    EXPECT_EQ(run("--waves " + path("w.fst") + " --waves-trigger " + trigger), plain);
    return tpu::test::read_fst(path("w.fst")).at("board.chip0.core0.step").front().time;
  };
  const uint64_t line = begin("line=model.py:42");
  EXPECT_EQ(begin("op=0"), line);
  EXPECT_LT(begin("firmware=launch_start"), line);
  EXPECT_EQ(begin("firmware=board.chip0.core0:launch_start"), begin("firmware=launch_start"));
}

TEST_F(ProbeSinks, TriggersOfNothingListWhatIsLikeThem) {
  const std::string file = "--waves " + path("w.fst") + " --waves-trigger ";
  EXPECT_THAT(run(file + "line=model.py:40"),
              HasSubstr("never came; of model.py there are operations of the lines 42"));
  EXPECT_THAT(
      run(file + "firmware=lanch_start"),
      HasSubstr("--waves-trigger firmware=lanch_start: the firmware has no function lanch_start; "
                "like it are launch_start"));
  EXPECT_THAT(run(file + "nan --no-data"), HasSubstr("(--no-data) computes no values"));
  EXPECT_THAT(run(file + "nonfinite"), HasSubstr("the trigger nonfinite never came"));
}

// Who waits for whom, and what came before it.
TEST_F(ProbeSinks, WavesKeepTheLastCyclesBeforeADeadlock) {
  std::string text = kRacing;
  text.replace(text.find("wait=1:1:take"), 13, "wait=3:1:take");
  save(text);
  const std::string told = run("--waves " + path("w.fst") + " --waves-before 100000 " +
                               "--waves-scope board.chip0.core0");
  EXPECT_THAT(told, HasSubstr("DEADLOCK"));
  EXPECT_THAT(told, Not(HasSubstr("nothing was recorded")));
  const tpu::test::WaveChanges changes = tpu::test::read_fst(path("w.fst"));
  const auto values = [&](const std::string& name) {
    std::vector<std::string> list;
    for (const tpu::test::WaveChange& change : changes.at("board.chip0.core0." + name)) {
      list.push_back(change.value);
    }
    return list;
  };
  EXPECT_THAT(values("dma_out.state"), Contains("waits"));
  EXPECT_THAT(values("dma_out.wait_semaphore"), Contains("0000000000000011"));
  EXPECT_THAT(values("dma_in.state"), Contains("runs"));
  EXPECT_THAT(values("seq.state"), Contains("waits_engines"));
  EXPECT_THAT(values("page.fw_state"), Contains("run"));
}

TEST_F(ProbeSinks, AFaultHasTheCoresOwnWordsAndWhereItsHartStands) {
  std::string text = kRacing;
  const std::string result = "dst=hbm[1]+0";
  text.replace(text.find(result), result.size(), "dst=hbm[1]+64");
  save(text);
  const std::string told = run("");
  EXPECT_THAT(told, HasSubstr("SLOT_RANGE"));
  EXPECT_THAT(told, HasSubstr("TPU:0 says: DMA operand outside of its memory or slot"));
  EXPECT_THAT(told, HasSubstr("the control hart of TPU:0 "));
  EXPECT_THAT(told, HasSubstr(" at 0x"));
}

}  // namespace
}  // namespace tpu::driver
