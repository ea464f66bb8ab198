// The process that writes a wave file: what is sent can be read back in order of time, a board that
// is killed leaves its last cycles, and a full disk is an error of the waves, not of the board.
#include "waves/fst_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "fst_reader.hpp"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

using Change = test::WaveChange;
using Changes = test::WaveChanges;
using test::read_fst;

std::string temp_file(const std::string& name) { return ::testing::TempDir() + "/" + name; }

FstOptions file_of(const std::string& name, uint64_t keep_cycles = 0) {
  return {.path = temp_file(name), .clock_mhz = 1000, .keep_cycles = keep_cycles};
}

TEST(FstProcess, RoundTrip) {
  constexpr std::array<std::pair<uint64_t, std::string_view>, 2> kParity = {
      {{0, "even"}, {1, "odd"}}};
  FstProcess fst(file_of("roundtrip.fst"));
  fst.push_scope("top");
  const uint32_t parity = fst.add_enum("parity", 2, kParity);
  const uint32_t bits = fst.add_signal("count", 8);
  const uint32_t state = fst.add_signal("state", 2, parity);
  const uint32_t wide = fst.add_signal("wide", 68);
  fst.pop_scope();
  fst.open(0);
  for (uint64_t t = 0; t < 1000; ++t) {
    fst.set(bits, t * 3, t & 0xff);
    fst.set(state, t * 3, t % 2);
    fst.set_words(wide, t * 3, std::array<uint32_t, 3>{static_cast<uint32_t>(t), 0, 9});
    if (t % 100 == 0) {
      fst.reached(t * 3);
    }
  }
  EXPECT_EQ(fst.finish(), "");
  const Changes changes = read_fst(temp_file("roundtrip.fst"));
  ASSERT_EQ(changes.at("top.count").size(), 1000U);
  EXPECT_EQ(changes.at("top.count")[5], (Change{15000, "00000101"}));
  EXPECT_EQ(changes.at("top.state")[1], (Change{3000, "odd"}));
  EXPECT_EQ(changes.at("top.wide")[6],
            (Change{18000, "1001" + std::string(32, '0') + std::string(29, '0') + "110"}));
}

TEST(FstProcess, TextsAreStringsAndNumbers) {
  FstProcess fst(file_of("texts.fst"));
  const uint32_t op = fst.add_text_signal("op");
  fst.open(0);
  EXPECT_EQ(fst.add_text("dot train.py:7", WaveTone::kRuns), 1U);
  fst.set(op, 3, 1);
  EXPECT_EQ(fst.add_text("waits sem5>=2", WaveTone::kWaits), 2U);
  fst.set(op, 4, 2);
  fst.set(op, 9, 0);
  EXPECT_EQ(fst.finish(), "");
  const Changes changes = read_fst(temp_file("texts.fst"));
  EXPECT_EQ(changes.at("op"),
            (std::vector<Change>{
                {0, ""}, {3000, "dot train.py:7"}, {4000, "waits sem5>=2"}, {9000, ""}}));
  const std::vector<Change>& numbers = changes.at("op_number");
  ASSERT_EQ(numbers.size(), 4U);
  EXPECT_EQ(numbers[2], (Change{4000, std::string(22, '0') + "10"}));
}

// What viewers are told: from when to when, which event opened the window, and the texts.
TEST(FstProcess, FilesForViewersComeWhenTheTimesAreKnown) {
  const std::string view = temp_file("span.txt");
  std::filesystem::remove(view);
  FstOptions options = file_of("span.fst", 100);
  options.write_views = [&](const WaveSpan& span) {
    std::ofstream(view) << span.begin << " " << span.trigger.value_or(1) << " " << span.end << " "
                        << span.texts.size() << " " << span.texts.back().text;
    return true;
  };
  FstProcess fst(options);
  const uint32_t count = fst.add_signal("count", 16);
  fst.add_text("a text", WaveTone::kRuns);
  for (uint64_t t = 0; t < 2000; t += 10) {
    fst.set(count, t, t);
    if (t == 1000) {
      EXPECT_FALSE(std::filesystem::exists(view));
      fst.open(1000);
    }
  }
  fst.close(1500);
  EXPECT_EQ(fst.finish(), "");
  std::ifstream file(view);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}),
            "900000 1000000 1500000 2 a text");
}

TEST(FstProcess, AFileForViewersThatCannotBeWrittenIsSaid) {
  FstOptions options = file_of("views.fst");
  options.write_views = [](const WaveSpan&) { return false; };
  FstProcess fst(options);
  fst.set(fst.add_signal("count", 16), 0, 1);
  EXPECT_THAT(fst.finish(), HasSubstr("writing the files for viewers beside"));
}

// The hart runs ahead, the Verilog behind: the file is in order of time, and each signal has one
// value for a cycle.
TEST(FstProcess, ChangesAreWrittenInOrderOfTime) {
  FstProcess fst(file_of("order.fst"));
  const uint32_t a = fst.add_signal("a", 8);
  const uint32_t b = fst.add_signal("b", 8);
  fst.hold(0, 5);
  fst.open(0);
  fst.set(a, 20, 1);
  fst.set(a, 30, 2);
  fst.reached(25);
  fst.set(b, 7, 3);
  fst.set(b, 7, 4);
  fst.set(b, 22, 5);
  fst.hold(0, FstProcess::kNone);
  fst.reached(31);
  EXPECT_EQ(fst.finish(), "");
  const Changes changes = read_fst(temp_file("order.fst"));
  EXPECT_EQ(changes.at("a"),
            (std::vector<Change>{{0, "00000000"}, {20000, "00000001"}, {30000, "00000010"}}));
  EXPECT_EQ(changes.at("b"),
            (std::vector<Change>{{0, "00000000"}, {7000, "00000100"}, {22000, "00000101"}}));
}

TEST(FstProcess, KeepsCyclesFromBeforeTheWindow) {
  FstProcess fst(file_of("before.fst", 100));
  const uint32_t count = fst.add_signal("count", 16);
  for (uint64_t t = 0; t < 1000; ++t) {
    fst.set(count, t, t);
    fst.reached(t);
  }
  fst.open(1000);
  fst.set(count, 1000, 7);
  fst.close(1010);
  fst.set(count, 1020, 8);
  EXPECT_EQ(fst.finish(), "");
  const std::vector<Change> changes = read_fst(temp_file("before.fst")).at("count");
  ASSERT_EQ(changes.size(), 101U);
  EXPECT_EQ(changes.front(), (Change{900000, "0000001110000100"}));  // 900
  EXPECT_EQ(changes.back(), (Change{1000000, "0000000000000111"}));
}

// SIGKILL: nothing runs any more in the process of the board.
TEST(FstProcess, AKilledBoardLeavesItsLastCycles) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // to wait for the helper
  const std::string view = temp_file("killed.txt");
  std::filesystem::remove(view);
  const pid_t board = ::fork();
  ASSERT_GE(board, 0);
  if (board == 0) {
    FstOptions options = file_of("killed.fst", 50);
    options.write_views = [&](const WaveSpan& span) {
      std::ofstream(view) << span.begin << " " << span.end << " " << span.trigger.has_value();
      return true;
    };
    FstProcess fst(options);
    const uint32_t count = fst.add_signal("count", 32);
    for (uint64_t t = 0; t <= 20'000; ++t) {
      fst.set(count, t, t);
      if (t % 1000 == 0) {
        fst.reached(t);
      }
    }
    ::raise(SIGKILL);
  }
  int ended = 0;
  while (::wait(nullptr) > 0) {
    ++ended;
  }
  EXPECT_EQ(ended, 2);  // board and helper
  const std::vector<Change> changes = read_fst(temp_file("killed.fst")).at("count");
  ASSERT_EQ(changes.size(), 51U);
  EXPECT_EQ(changes.front().time, 19'950'000U);
  EXPECT_EQ(std::stoul(changes.back().value, nullptr, 2), 20'000U);
  std::ifstream file(view);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "19950000 20000000 0");
}

TEST(FstProcess, RefusesAPathThatCannotBeCreated) {
  EXPECT_THROW(FstProcess({.path = "/nonexistent-folder/x.fst"}), std::runtime_error);
}

// The FST library would remove them, /dev/null too where the user may do that.
TEST(FstProcess, DevicesAndPipesAreRefusedAndStay) {
  const std::string pipe = temp_file("waves.pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  try {
    FstProcess fst({.path = pipe});
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
  FstProcess fst(file_of("full.fst"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  const uint32_t bits = fst.add_signal("noise", 64);
  fst.open(0);
  uint64_t value = 1;
  for (uint64_t t = 0; t < 400'000; ++t) {
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    fst.set(bits, t, value);
    if (t % 1000 == 0) {
      fst.reached(t);
    }
  }
  EXPECT_THAT(fst.finish(), HasSubstr("full.fst failed"));
}

}  // namespace
}  // namespace tpu::model
