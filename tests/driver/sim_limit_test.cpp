// Programs that never end on the simulated board: the time limit of a launch ends them, whatever
// they loop over, and the board goes on. The limit is wall-clock time; how long it takes is not
// looked at.
#include <gtest/gtest.h>

#include <functional>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"
#include "tests/driver/program_builder.hpp"
#include "tpu/tpu.hpp"

namespace tpu::driver {
namespace {

using test::counting;
using test::kCopyCommands;
using test::kCopySlots;

class SimLimit : public ::testing::Test {
 protected:
  explicit SimLimit(double seconds = 0.5)
      : SimLimit([seconds](OpenOptions& options) { options.time_limit = seconds; }) {}
  explicit SimLimit(const std::function<void(OpenOptions&)>& change) {
    OpenOptions options;
    options.overrides = kOverrides;
    change(options);
    board_ = Board::open(options);
  }
  void TearDown() override { board_.close(); }

  Executable load(const std::string& name, const std::string& code, int partitions = 1) {
    const std::string text = ".program \"" + name + "\"\n.partitions " +
                             std::to_string(partitions) + "\n" + kCopySlots + code;
    const auto board = spec::load_board("v3_8", kOverrides);
    return board_.load(exe::write_executable(compiler::assemble(text, "test.s", board)), 0);
  }

  // The watchdogs of the board stay out of the way.
  const std::vector<std::string> kOverrides = {"mgmt.watchdog_us=4000000"};
  Board board_;
};

TEST_F(SimLimit, EndlessLoopsEndWithTheirPlaceAndTheBoardGoesOn) {
  const Executable good = load("copy", std::string(kCopyCommands) + "  halt\n");
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = good.put(0, sent);
  const std::string scalars =
      "  li r3, 1\n.op \"spin\" file=\"model.py\" line=7\n  markb 0\nturn:\n"
      "  addi r3, r3, 1\n  jmp turn\n  halt\n";
  const std::string commands = "turn:\n" + std::string(kCopyCommands) + "  jmp turn\n  halt\n";
  for (const std::string& code : {scalars, commands}) {
    const Executable endless = load("endless", code);
    const RunResult lost = endless.run({x});
    const RunResult behind = good.run({x});
    const auto error = lost.done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
    EXPECT_EQ(error->place().device, 0);
    for (const char* part : {"launch of endless", "(id ", "step 0", "sequencer at word"}) {
      EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
    }
    if (code == scalars) {
      EXPECT_EQ(error->place().op, "spin") << error->what();
      EXPECT_EQ(error->place().source, "model.py:7");
    }
    EXPECT_EQ(behind.outputs[0].to_host().bytes, sent.bytes);
    EXPECT_THROW(lost.outputs[0].to_host(), Error);
  }
  EXPECT_EQ(x.to_host().bytes, sent.bytes);
}

// The program ends, but not within the first limit on any host. (A limit is also the time in which
// an aborted launch must end: a tiny one could break the board.)
TEST_F(SimLimit, TheLimitChangesWhileTheBoardIsOpen) {
  const Executable counts = load(
      "counts", "  li r3, 0\n  li r4, 50000000\nturn:\n  addi r3, r3, 1\n  blt r3, r4, turn\n" +
                    std::string(kCopyCommands) + "  halt\n");
  const Array x = counts.put(0, counting(DType::kI32, {1024}));
  board_.change_time_limit(0.05);
  EXPECT_THROW(board_.change_time_limit(-1), Error);  // the limit is what it was
  const auto error = counts.run({x}).done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
  board_.change_time_limit(0);
  EXPECT_EQ(counts.run({x}).outputs[0].to_host().bytes, x.to_host().bytes);
}

// One core of a gang loops, the other waits at its end; the next launch waits for both.
TEST_F(SimLimit, GangIsTakenOffWholeAndTheLoopingCoreIsNamed) {
  const Executable good = load("copy", std::string(kCopyCommands) + "  halt\n", 2);
  const Executable endless = load("endless",
                                  "  rid r1\n  beq r1, r0, end\nturn:\n  jmp turn\n"
                                  "end:\n  halt\n",
                                  2);
  const HostArray sent = counting(DType::kI32, {1024});
  const Array x = good.put(0, sent);
  const RunResult lost = endless.run({endless.put(0, sent)});
  const RunResult behind = good.run({x});
  const auto error = lost.done.wait_for_error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
  EXPECT_EQ(error->place().device, 1) << error->what();
  EXPECT_EQ(behind.outputs[0].to_host().bytes, sent.bytes);
}

// Lines about launches that take long, of a tenth of a second of wall-clock time.
class SimProgress : public SimLimit {
 protected:
  SimProgress()
      : SimLimit([this](OpenOptions& options) {
          options.time_limit = 1.5;
          options.progress_seconds = 0.1;
          options.progress = [this](const std::string& line) { lines_.push_back(line); };
        }) {}

  void run_to_the_limit(const std::string& code, int partitions = 1) {
    const Executable program = load("endless", code, partitions);
    const auto error =
        program.run({program.put(0, counting(DType::kI32, {1024}))}).done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code(), ErrorCode::kTimeout) << error->what();
  }

  std::vector<std::string> lines_;
};

TEST_F(SimProgress, ALoopThatNeverEndsIsToldWithItsIterationsAndTheirRate) {
  run_to_the_limit(
      ".op \"while\" file=\"model.py\" line=7\n"
      ".op \"copy\" file=\"model.py\" line=9\n"
      "turn:\n  markb 0\n  dma_in.nop op=1\n" +
      std::string(kCopyCommands) + "  marke 0\n  jmp turn\n  halt\n");
  ASSERT_GE(lines_.size(), 2U);
  EXPECT_LE(lines_.size(), 25U) << "a line each tenth of a second, however many cores there are";
  for (const std::string& line : lines_) {
    EXPECT_TRUE(line.starts_with("launch of endless (id ")) << line;
    EXPECT_NE(line.find("TPU:0 is at "), std::string::npos) << line;
    EXPECT_NE(line.find(" of while at model.py:7"), std::string::npos) << line;
  }
  EXPECT_EQ(lines_.front().find("iterations/s"), std::string::npos) << lines_.front();
  EXPECT_NE(lines_.back().find(" iterations/s)"), std::string::npos) << lines_.back();
}

TEST_F(SimProgress, OfAGangOneLineIsTold) {
  run_to_the_limit("turn:\n" + std::string(kCopyCommands) + "  jmp turn\n  halt\n", 8);
  ASSERT_GE(lines_.size(), 2U);
  EXPECT_LE(lines_.size(), 25U) << "a line each tenth of a second, however many cores there are";
  EXPECT_NE(lines_.front().find(" % of the code)"), std::string::npos) << lines_.front();
}

// The loop does not end within the time on any host.
TEST_F(SimProgress, BitsAndCyclesStayAsTheyAre) {
  const Executable counts = load(
      "counts", "  li r3, 0\n  li r4, 30000000\nturn:\n  addi r3, r3, 1\n  blt r3, r4, turn\n" +
                    std::string(kCopyCommands) + "  halt\n");
  const Array x = counts.put(0, counting(DType::kI32, {1024}));
  const auto cycles = [&](double seconds) {
    board_.change_time_limit(seconds);
    const uint64_t before = board_.run_cycles()[0];
    EXPECT_EQ(counts.run({x}).outputs[0].to_host().bytes, x.to_host().bytes);
    return board_.run_cycles()[0] - before;
  };
  const uint64_t often = cycles(0);
  EXPECT_FALSE(lines_.empty());
  EXPECT_EQ(cycles(60), often);
}

class SimCancel : public SimLimit {
 protected:
  SimCancel() : SimLimit(0) {}
};

// Without a time limit, and while no core has bound the endless launch.
TEST_F(SimCancel, ClosingEndsLaunchesThatHaveNotStarted) {
  const Executable good = load("copy", std::string(kCopyCommands) + "  halt\n", 2);
  const Executable endless = load("endless", "turn:\n  jmp turn\n  halt\n", 2);
  const Executable single = load("single", "turn:\n  jmp turn\n  halt\n");
  const HostArray sent = counting(DType::kI32, {1024});
  const RunResult first = good.run({good.put(0, sent)});
  const RunResult lost = endless.run({endless.put(0, sent)});
  const RunResult behind = single.run({single.put(0, sent)});
  board_.close(CloseMode::kCancel);
  EXPECT_TRUE(first.done.ready());
  const auto expect_end = [](const RunResult& result, const std::string& part) {
    const auto error = result.done.wait_for_error();
    ASSERT_NE(error, nullptr);
    EXPECT_NE(error->message().find(part), std::string::npos) << error->what();
  };
  expect_end(lost, "HOST_ABORT");
  expect_end(behind, "closed");
}

}  // namespace
}  // namespace tpu::driver
