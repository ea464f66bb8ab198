// Wave files: what is written can be read back, windows hold their step only, and a full disk is an
// error of the waves, not of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "fst_reader.hpp"
#include "waves/board_waves.hpp"
#include "waves/fst_process.hpp"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

using Change = test::WaveChange;
using Changes = test::WaveChanges;
using test::read_fst;

std::string temp_file(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// Results come 10 cycles after the engine is free again.
DoneEvent command(uint64_t step, uint64_t issued, uint64_t start, uint64_t end, spec::Queue queue,
                  spec::Opcode opcode) {
  return {.cycle = end + 10,
          .source = {.unit = static_cast<uint32_t>(queue),
                     .step = step,
                     .op_id = 7,
                     .opcode = static_cast<uint8_t>(opcode)},
          .issued = issued,
          .start = start,
          .free_at = end};
}

// A step of core 0 begins or ends.
ProgramEvent program(uint64_t cycle, uint64_t step, bool begin) {
  return {.cycle = cycle, .step = step, .begin = begin};
}

HartEvent hart(uint64_t cycle, uint32_t pc, bool sleeping) {
  return {
      .cycle = cycle, .kind = sleeping ? HartEvent::Kind::kSleep : HartEvent::Kind::kRun, .pc = pc};
}

TEST(FstProcess, RoundTrip) {
  const std::string path = temp_file("roundtrip.fst");
  FstProcess fst(path);
  fst.push_scope("top");
  const uint32_t bits = fst.add_bits("count", 8);
  const uint32_t text = fst.add_string("state");
  fst.pop_scope();
  for (uint64_t t = 0; t < 1000; ++t) {
    fst.time(t * 3);
    fst.set_bits(bits, t & 0xff);
    fst.set_string(text, t % 2 != 0 ? "odd" : "even");
  }
  EXPECT_EQ(fst.finish(), "");
  const Changes changes = read_fst(path);
  ASSERT_EQ(changes.at("top.count").size(), 1000U);
  EXPECT_EQ(changes.at("top.count")[5], (Change{15, "00000101"}));
  EXPECT_EQ(changes.at("top.state")[1], (Change{3, "odd"}));
}

TEST(FstProcess, RefusesAPathThatCannotBeCreated) {
  EXPECT_THROW(FstProcess("/nonexistent-folder/x.fst"), std::runtime_error);
}

// The FST library would remove them, /dev/null too where the user may do that.
TEST(FstProcess, DevicesAndPipesAreRefusedAndStay) {
  const std::string pipe = temp_file("waves.pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  try {
    FstProcess fst(pipe);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("waves.pipe is a device or a pipe; name a file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::remove(pipe);
}

TEST(FstProcess, FullDiskIsAnErrorOfTheWavesOnly) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small),
            0);  // the helper inherits it: writes beyond 4 KiB fail
  FstProcess fst(temp_file("full.fst"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  const uint32_t bits = fst.add_bits("noise", 64);
  uint64_t value = 1;
  for (uint64_t t = 0; t < 400'000; ++t) {
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    fst.time(t);
    fst.set_bits(bits, value);
  }
  EXPECT_THAT(fst.finish(), HasSubstr("full.fst failed"));
}

BoardWavesOptions one_core(const std::string& name, uint64_t first_step, uint64_t steps) {
  BoardWavesOptions options;
  options.path = temp_file(name);
  options.chips = 1;
  options.cores_per_chip = 1;
  options.clock_mhz = 1000;
  options.first_step = first_step;
  options.step_count = steps;
  return options;
}

// From the first change at `from` on.
std::vector<Change> since(const Changes& changes, const std::string& name, uint64_t from) {
  std::vector<Change> list = changes.at(name);
  std::erase_if(list, [from](const Change& change) { return change.time < from; });
  return list;
}

// Transfers are free to be followed at once, and done much later.
TEST(BoardWaves, BusyLastsUntilTheResultsAreThere) {
  BoardWaves waves(one_core("busy.fst", 0, 1));
  waves.program(program(0, 0, true));
  DoneEvent first = command(0, 1, 10, 11, spec::Queue::kDmaIn, spec::Opcode::kDma);
  DoneEvent second = command(0, 2, 11, 12, spec::Queue::kDmaIn, spec::Opcode::kFill);
  first.cycle = 300, second.cycle = 400, second.source.op_id = 9;
  waves.done(first);
  waves.done(second);
  waves.program(program(500, 0, false));
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("busy.fst"));
  const std::string queue = "board.chip0.core0.dma_in.";
  EXPECT_EQ(since(changes, queue + "busy", 1000),
            (std::vector<Change>{{10000, "1"}, {400000, "0"}}));
  EXPECT_EQ(since(changes, queue + "opcode", 1000),
            (std::vector<Change>{{10000, "dma"}, {11000, "fill"}, {400000, "-"}}));
  EXPECT_EQ(since(changes, queue + "op_id", 11000).at(0).time, 11000U);
  EXPECT_EQ(since(changes, queue + "queued", 1000).size(), 4U);
}

TEST(BoardWaves, HartsAreShownAsTheyStandAndMove) {
  BoardWaves waves(one_core("hart.fst", 0, 2));
  waves.hart(hart(5, 0x80, true));  // before the window: where it stands when it opens
  waves.program(program(10, 0, true));
  waves.hart(hart(20, 0x80, false));
  waves.hart(hart(30, 0x92, true));
  waves.program(program(40, 0, false));
  waves.hart(hart(45, 0x100, false));  // between two steps of the window
  waves.program(program(50, 1, true));
  waves.program(program(60, 1, false));
  waves.hart(hart(70, 0x200, true));
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(temp_file("hart.fst"));
  EXPECT_EQ(since(changes, "board.chip0.core0.hart.wfi", 10000),
            (std::vector<Change>{{10000, "1"}, {20000, "0"}, {30000, "1"}, {45000, "0"}}));
  const std::vector<Change> pc = since(changes, "board.chip0.core0.hart.pc", 10000);
  ASSERT_EQ(pc.size(), 3U);
  EXPECT_EQ(std::stoul(pc[0].value, nullptr, 2), 0x80U);
  EXPECT_EQ(pc[1].time, 30000U);
  EXPECT_EQ(std::stoul(pc[2].value, nullptr, 2), 0x100U);
}

TEST(BoardWaves, AWindowBehindTheRunIsAnError) {
  BoardWaves waves(one_core("late.fst", 7, 2));
  for (uint64_t step = 0; step < 3; ++step) {
    waves.program(program(10 * step, step, true));
    waves.program(program(10 * step + 5, step, false));
  }
  const std::string error = waves.finish();
  EXPECT_THAT(error, HasSubstr("nothing was recorded in"));
  EXPECT_THAT(error, HasSubstr("late.fst: of the steps 7 to 8 none ran; the board ran 3 steps"));
}

TEST(BoardWaves, ASecondRunOnTheFileIsToldWhy) {
  BoardWaves waves(one_core("shared.fst", 0, 1));
  waves.program(program(0, 0, true));
  const auto second = [] { BoardWaves other(one_core("shared.fst", 0, 1)); };
  EXPECT_THROW(
      {
        try {
          second();
        } catch (const std::runtime_error& error) {
          EXPECT_THAT(error.what(), HasSubstr("shared.fst is being written by another run"));
          throw;
        }
      },
      std::runtime_error);
  waves.program(program(10, 0, false));
  EXPECT_EQ(waves.finish(), "");
  EXPECT_EQ(read_fst(temp_file("shared.fst")).at("board.chip0.core0.program_running").size(), 2U);
  second();
}

TEST(BoardWaves, WritesTheWindowInOrderOfTime) {
  const std::string path = temp_file("board.fst");
  BoardWaves waves({.path = path,
                    .chips = 1,
                    .cores_per_chip = 1,
                    .clock_mhz = 1000,
                    .first_step = 1,
                    .step_count = 1});
  for (uint64_t step = 0; step < 3; ++step) {
    const uint64_t t = 1000 * step;
    waves.program(program(t, step, true));
    // Reported in order of completion: the second started first.
    waves.done(command(step, t + 3, t + 50, t + 60, spec::Queue::kVpu, spec::Opcode::kVpuKernel));
    waves.done(command(step, t + 1, t + 10, t + 90, spec::Queue::kMxu0, spec::Opcode::kMatmul));
    waves.program(program(t + 200, step, false));
  }
  EXPECT_EQ(waves.finish(), "");
  const Changes changes = read_fst(path);
  const auto& busy = changes.at("board.chip0.core0.mxu0.busy");
  EXPECT_EQ(std::vector<Change>(busy.end() - 2, busy.end()),
            (std::vector<Change>{{1010000, "1"}, {1100000, "0"}}));
  const auto& opcode = changes.at("board.chip0.core0.vpu.opcode");
  EXPECT_EQ(opcode[opcode.size() - 2], (Change{1050000, "vpu_kernel"}));
  for (const auto& [name, list] : changes) {
    for (const Change& change : list) {
      EXPECT_TRUE(change.time == 0 || (change.time >= 1000000 && change.time <= 1200000))
          << name << " " << change.time;
    }
  }
  EXPECT_TRUE(std::filesystem::exists(temp_file("board.gtkw")));
}

}  // namespace
}  // namespace tpu::model
