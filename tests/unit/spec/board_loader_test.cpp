// Board files: presets, overrides and every kind of mistake with its place.
#include "board/board_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "board/chip_kind.hpp"

namespace tpu::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kHashOfV38 = 0xad1d01b71696df59;

std::string preset_text() {
  for (const BoardPreset& preset : kBoardPresets) {
    if (preset.name == "v3_8") {
      return std::string(preset.text);
    }
  }
  return {};
}

std::string write_board(const std::string& from, const std::string& to) {
  std::string text = preset_text();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  // Tests of this file run side by side, each in a process of its own.
  const auto folder = std::filesystem::path(::testing::TempDir()) / std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder / "board_loader_test.toml";
  std::ofstream(path) << text;
  return path;
}

std::string error_of(const std::string& name, const std::vector<std::string>& overrides = {}) {
  try {
    static_cast<void>(load_board(name, overrides));
  } catch (const BoardError& error) {
    return error.what();
  }
  return "no error";
}

TEST(BoardLoader, ReadsPresets) {
  const BoardParams v3 = load_board("v3_8");
  EXPECT_EQ(v3.core.clock_mhz, 940);
  EXPECT_EQ(core_count(v3), 8);
  EXPECT_EQ(load_board("v2_8").core.mxus, 1);
  EXPECT_NE(board_hash(v3), board_hash(load_board("v2_8")));
}

TEST(BoardLoader, ChipsHaveTheKindThatFrameworksName) {
  EXPECT_EQ(chip_kind(load_board("v3_8")), "TPU v3");
  EXPECT_EQ(chip_kind(load_board("v2_8")), "TPU v2");
}

TEST(BoardLoader, StructuralOverridesChangeTheHash) {
  EXPECT_NE(board_hash(load_board("v3_8", {"core.vmem_kib=64"})), board_hash(load_board("v3_8")));
}

TEST(BoardLoader, TimingOverridesChangeTheValueOnly) {
  const BoardParams changed = load_board("v3_8", {"hbm.gbps_per_chip=450"});
  EXPECT_EQ(changed.hbm.gbps_per_chip, 450);
  EXPECT_EQ(board_hash(changed), board_hash(load_board("v3_8")));
}

TEST(BoardLoader, TakesRealNumbers) {
  const std::string entry = "input_gbps = { value = 0,";
  EXPECT_EQ(load_board("v3_8", {"host.input_gbps=0.063"}).host.input_gbps, 0.063);
  EXPECT_EQ(load_board("v3_8", {"host.input_gbps=12"}).host.input_gbps, 12.0);
  EXPECT_EQ(load_board(write_board(entry, "input_gbps = { value = 2.5,")).host.input_gbps, 2.5);
  EXPECT_THAT(error_of(write_board(entry, "input_gbps = { value = \"fast\",")),
              HasSubstr("host.input_gbps: invalid value: expected a number"));
  EXPECT_THAT(error_of(write_board(entry, "input_gbps = { value = -0.5,")),
              HasSubstr("host.input_gbps = -0.5 is out of range"));
  EXPECT_THAT(error_of("v3_8", {"host.input_gbps=1 GB"}),
              HasSubstr("invalid value '1 GB': expected a number"));
  for (const char* value : {"nan", "-1e-9", "1000000.5", "inf"}) {
    EXPECT_THAT(error_of("v3_8", {std::string("host.input_gbps=") + value}),
                HasSubstr("out of range"));
  }
  const BoardParams none = load_board("v3_8");
  const BoardParams slow = load_board("v3_8", {"host.input_gbps=0.1"});
  EXPECT_NE(value_text(*std::find_if(kBoardKeys.begin(), kBoardKeys.end(),
                                     [](const BoardKey& key) { return key.real != nullptr; }),
                       slow),
            "0");
  EXPECT_EQ(host_input_cycles(none, 1 << 20), 0U);
  EXPECT_EQ(host_input_cycles(slow, 1000), 9400U);
  EXPECT_EQ(host_input_cycles(slow, 1), 10U);
  EXPECT_EQ(host_input_cycles(load_board("v3_8", {"host.input_gbps=1e-30"}), 1 << 20),
            1'000'000'000'000'000U);
}

TEST(BoardLoader, NamesUnknownKeyWithLine) {
  EXPECT_THAT(error_of(write_board("clock_mhz", "clock_ghz")),
              AllOf(HasSubstr("board_loader_test.toml:11"),
                    HasSubstr("unknown key core.clock_ghz; did you mean core.clock_mhz?")));
}

TEST(BoardLoader, RefusesWrongUnitAndImpossibleValue) {
  EXPECT_THAT(error_of(write_board("unit = \"MHz\"", "unit = \"GHz\"")), HasSubstr("unit \"MHz\""));
  EXPECT_THAT(error_of(write_board("value = 940", "value = 0")),
              HasSubstr("core.clock_mhz = 0 is out of range"));
  EXPECT_THAT(error_of(write_board("value = 940", "value = \"fast\"")), HasSubstr("integer"));
  EXPECT_THAT(error_of(write_board("value = 940", "value = ")),
              HasSubstr("board_loader_test.toml:11"));
}

TEST(BoardLoader, RefusesMissingKey) {
  std::string text = preset_text();
  const size_t begin = text.find("clock_mhz");
  text.erase(begin, text.find('\n', begin) - begin);
  const std::string path = ::testing::TempDir() + "/board_loader_missing.toml";
  std::ofstream(path) << text;
  EXPECT_THAT(error_of(path), HasSubstr("core.clock_mhz is missing"));
}

// A folder of board files of this process.
class IncludedBoards : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("boards_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_ / "deeper");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static std::string clock(int mhz) {
    return "[core]\nclock_mhz = { value = " + std::to_string(mhz) +
           ", unit = \"MHz\", origin = \"chosen\", source = \"test\" }\n";
  }
  static std::string named(const std::string& name) {
    return "[board]\nname = { value = \"" + name +
           "\", unit = \"-\", origin = \"chosen\", source = \"test\" }\n";
  }

  std::filesystem::path folder_;
};

TEST_F(IncludedBoards, GiveTheKeysThatAFileDoesNotHave) {
  const BoardParams board =
      load_board(write("a.toml", "include = \"v3_8\"\n" + named("mine") + clock(1000)));
  const BoardParams v3 = load_board("v3_8");
  EXPECT_EQ(board.board.name, "mine");
  EXPECT_EQ(board.core.clock_mhz, 1000);
  for (const BoardKey& key : kBoardKeys) {
    if (key.name != "name" && key.name != "clock_mhz") {
      EXPECT_EQ(value_text(key, board), value_text(key, v3)) << key.section << "." << key.name;
    }
  }
}

TEST_F(IncludedBoards, AreFoundFromTheFileThatIncludes) {
  write("base.toml", "include = \"v2_8\"\n" + named("base") + clock(800));
  const std::string path = write("deeper/a.toml", "include = \"../base.toml\"\n" + named("mine"));
  EXPECT_EQ(load_board(path).core.clock_mhz, 800);
  EXPECT_EQ(load_board(path).core.mxus, 1);
  EXPECT_EQ(load_board(path, {"core.clock_mhz=900"}).core.clock_mhz, 900);
}

TEST_F(IncludedBoards, MayHaveTheFileNameOfAPreset) {
  EXPECT_EQ(load_board(write("v3_8.toml", "include = \"v3_8\"\n" + named("mine"))).board.name,
            "mine");
}

TEST_F(IncludedBoards, DoNotGiveTheirName) {
  EXPECT_THAT(error_of(write("a.toml", "include = \"v3_8\"\n" + clock(1000))),
              HasSubstr("board.name is missing"));
}

TEST_F(IncludedBoards, ThatCannotBeReadAreNamedWithTheLine) {
  EXPECT_THAT(error_of(write("a.toml", "# head\ninclude = \"v9_8\"\n")),
              AllOf(HasSubstr("a.toml:2: include"), HasSubstr("unknown board 'v9_8'")));
  EXPECT_THAT(error_of(write("a.toml", "include = \"no.toml\"\n")),
              AllOf(HasSubstr("a.toml:1: include"), HasSubstr("no.toml")));
  EXPECT_THAT(error_of(write("a.toml", "include = 3\n")),
              HasSubstr("include must be the name of a board"));
  write("bad.toml", "include = \"v3_8\"\n[core]\nclock_ghz = 1\n");
  EXPECT_THAT(error_of(write("a.toml", "include = \"bad.toml\"\n")),
              HasSubstr("bad.toml:3: unknown key core.clock_ghz"));
}

TEST_F(IncludedBoards, MayNotIncludeThemselves) {
  const std::string one = write("one.toml", "include = \"deeper/two.toml\"\n" + named("one"));
  write("deeper/two.toml", "include = \"../one.toml\"\n" + named("two"));
  EXPECT_THAT(error_of(one), HasSubstr("includes itself"));
}

TEST(BoardLoader, RefusesBadOverrides) {
  EXPECT_THAT(error_of("v3_8", {"hbm.gbps"}), HasSubstr("expected section.key=value"));
  EXPECT_THAT(error_of("v3_8", {"hbm.speed=1"}),
              HasSubstr("unknown key hbm.speed; the keys of hbm are gib_per_core, gbps_per_chip, "
                        "efficiency_percent"));
  EXPECT_THAT(error_of("v3_8", {"ici.link_gpbs=1"}),
              HasSubstr("unknown key ici.link_gpbs; did you mean ici.link_gbps?"));
  EXPECT_THAT(error_of("v3_8", {"hbm.link_gbps=1"}), HasSubstr("; did you mean ici.link_gbps?"));
  EXPECT_THAT(error_of("v3_8", {"matrix_unit.size=1"}),
              HasSubstr("unknown key matrix_unit.size; the sections are board, pod, core, mxu, "));
  EXPECT_THAT(error_of("v3_8", {"mxu.rows=fast"}), HasSubstr("expected an integer"));
  EXPECT_THAT(
      error_of("v3_8", {"mxu.rows=64,mxu.cols=64"}),
      HasSubstr("invalid value '64,mxu.cols=64': expected an integer; this is more than one "
                "setting"));
  EXPECT_THAT(error_of("v3_8", {"mxu.weight_rows_per_cycle=1"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of("v3_8", {"core.semaphores=63"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of("v3_8", {"core.semaphore_cycles=0"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of("v3_8", {"mxu.rows=40"}), HasSubstr("multiple of 32"));
  EXPECT_THAT(error_of("v3_8", {"mxu.chains=1"}), HasSubstr("numerics"));
}

// What the schema allows is a board, or says which keys do not go together; one beyond is refused.
TEST(BoardLoader, KeepsTheLimitsOfEveryKey) {
  for (const BoardKey& key : kBoardKeys) {
    if (key.number == nullptr) {
      continue;
    }
    const std::string name = std::string(key.section) + "." + std::string(key.name);
    const auto refusal = [&](const std::string& value) -> std::string {
      try {
        BoardParams params = load_board("v3_8", {name + "=" + value});
        EXPECT_EQ(std::to_string(key.number(params)), value) << name;
      } catch (const BoardError& error) {
        return error.what();
      }
      return {};
    };
    for (const int64_t value : {key.min, key.max}) {
      const std::string text = refusal(std::to_string(value));
      EXPECT_TRUE(text.empty() || text.find(name) != std::string::npos) << name << ": " << text;
    }
    for (const std::string& value :
         {std::to_string(key.min - 1), std::to_string(key.max + 1),
          std::string("9223372036854775807"), std::string("-9223372036854775808"),
          std::string("9223372036854775808")}) {
      EXPECT_NE(refusal(value).find(name), std::string::npos) << name << "=" << value;
    }
  }
}

TEST(BoardLoader, TakesTorusesOfAnyShapeUpToTheLimit) {
  for (const char* shape :
       {"1 1", "2 1", "3 3", "5 1", "6 3", "8 4", "8 8", "16 4", "1024 32", "64 1"}) {
    const std::string text = shape;
    const size_t gap = text.find(' ');
    EXPECT_EQ(error_of("v3_8", {"board.chips=" + text.substr(0, gap),
                                "board.torus_x=" + text.substr(gap + 1)}),
              "no error");
  }
  EXPECT_THAT(error_of("v3_8", {"board.chips=8", "board.torus_x=3"}),
              HasSubstr("multiple of board.torus_x"));
  EXPECT_THAT(error_of("v3_8", {"board.chips=1056", "board.torus_x=32"}),
              HasSubstr("2112 cores; a board has at most 2048"));
  EXPECT_THAT(error_of("v3_8", {"board.chips=66", "board.torus_x=1"}),
              HasSubstr("a torus of 1 x 66 chips has ways of 33 links; a board has at most 32"));
  EXPECT_THAT(error_of("v3_8", {"board.chips=2049"}),
              HasSubstr("board.chips = 2049 is out of range"));
  EXPECT_THAT(error_of("v3_8", {"board.cores_per_chip=3"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of("v3_8", {"core.mxus=5"}), HasSubstr("out of range"));
  EXPECT_THAT(error_of("v3_8", {"mxu.cols=257"}), HasSubstr("out of range"));
}

TEST(BoardLoader, CountsChipsOfAPodOverAllBoards) {
  const BoardParams pod = load_board("v3_32");
  EXPECT_EQ(board_count(pod), 4);
  EXPECT_EQ(chip_count(pod), 16);
  EXPECT_EQ(core_count(pod), 32);
  EXPECT_EQ(chips_x(pod), 4);
  EXPECT_EQ(chips_y(pod), 4);
  const std::array<int64_t, 16> boards = {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3};
  for (size_t chip = 0; chip < boards.size(); ++chip) {
    EXPECT_EQ(board_of_chip(pod, static_cast<int64_t>(chip)), boards[chip]) << chip;
  }
  EXPECT_EQ(board_count(load_board("v3_8")), 1);
  EXPECT_EQ(board_of_chip(load_board("v3_8"), 3), 0);
}

// Cloud TPU documentation: v3-2048 are 32 x 32 chips, the whole machine; v2-512 are 16 x 16.
TEST(BoardLoader, SlicesHaveTheirShapesAndCloseFullDimensions) {
  struct Slice {
    const char* name;
    int64_t cores, x, y;
    bool closed_x, closed_y;
  };
  for (const Slice& slice : {Slice{"v2_32", 32, 4, 4, false, false},
                             {"v2_64", 64, 4, 8, false, false},
                             {"v2_128", 128, 8, 8, false, false},
                             {"v2_256", 256, 8, 16, false, true},
                             {"v2_512", 512, 16, 16, true, true},
                             {"v3_64", 64, 4, 8, false, false},
                             {"v3_128", 128, 8, 8, false, false},
                             {"v3_256", 256, 8, 16, false, false},
                             {"v3_512", 512, 16, 16, false, false},
                             {"v3_1024", 1024, 16, 32, false, true},
                             {"v3_2048", 2048, 32, 32, true, true}}) {
    SCOPED_TRACE(slice.name);
    const BoardParams pod = load_board(slice.name);
    EXPECT_EQ(pod.board.name, slice.name);
    EXPECT_EQ(core_count(pod), slice.cores);
    EXPECT_EQ(chips_x(pod), slice.x);
    EXPECT_EQ(chips_y(pod), slice.y);
    EXPECT_EQ(pod.pod.wrap_x != 0, slice.closed_x);
    EXPECT_EQ(pod.pod.wrap_y != 0, slice.closed_y);
  }
}

// Executables of one board were compiled before there were pods.
TEST(BoardLoader, OneBoardHasTheHashThatItHadWithoutPods) {
  EXPECT_EQ(board_hash(load_board("v3_8")), kHashOfV38);
  EXPECT_EQ(board_hash(load_board("v3_8", {"pod.wrap_x=1"})), kHashOfV38);
  EXPECT_NE(board_hash(load_board("v3_8", {"pod.boards_y=2"})), kHashOfV38);
  EXPECT_NE(board_hash(load_board("v3_32")), board_hash(load_board("v3_32", {"pod.wrap_x=1"})));
}

TEST(BoardLoader, RefusesPodsOfTooManyCoresOrTooLongWays) {
  EXPECT_THAT(
      error_of("v3_32", {"pod.boards_x=32", "pod.boards_y=32", "pod.wrap_x=1", "pod.wrap_y=1"}),
      AllOf(HasSubstr("8192 cores; a pod has at most 2048"), HasSubstr("fewer boards")));
  const std::vector<std::string> largest = {"pod.boards_x=16", "pod.boards_y=16"};
  EXPECT_THAT(error_of("v3_32", largest),
              AllOf(HasSubstr("a pod of 32 x 32 chips has ways of 62 links"),
                    HasSubstr("at most 32"), HasSubstr("pod.wrap_x")));
  EXPECT_EQ(
      error_of("v3_32", {"pod.boards_x=16", "pod.boards_y=16", "pod.wrap_x=1", "pod.wrap_y=1"}),
      "no error");
  EXPECT_EQ(error_of("v3_32", {"pod.boards_x=8", "pod.boards_y=8"}), "no error");
}

TEST(BoardLoader, AQueueIsAUnitOfAnEngine) {
  const auto queues = [](int64_t mxus) {
    const BoardParams board = load_board("v3_8", {"core.mxus=" + std::to_string(mxus)});
    std::string names;
    for (size_t queue = 0; queue < kQueues.size(); ++queue) {
      names += has_queue(board, queue) ? std::string(kQueueNames[queue]) + " " : "";
    }
    return names;
  };
  EXPECT_EQ(queues(1), "mxu0 vpu xlu dma_in dma_out dma_remote ");
  EXPECT_EQ(queues(2), "mxu0 mxu1 vpu xlu dma_in dma_out dma_remote ");
  EXPECT_EQ(queues(4), "mxu0 mxu1 vpu xlu dma_in dma_out dma_remote mxu2 mxu3 ");
  EXPECT_FALSE(has_queue(load_board("v3_8"), kQueues.size()));
}

TEST(BoardLoader, NamesPresetsWhenUnknown) {
  EXPECT_THAT(error_of("v9"), AllOf(HasSubstr("unknown board 'v9'"), HasSubstr("v3_8")));
  EXPECT_THAT(error_of("/nowhere/board.toml"), HasSubstr("cannot be opened"));
}

// Queues of further matrix units stand behind those of the DMA engines.
TEST(BoardLoader, OnlyDmaQueuesHaveTheNumberInFlightOfDma) {
  const BoardParams board = load_board("v3_8", {"core.in_flight=7", "dma.in_flight=3"});
  for (const Queue queue : {Queue::kDmaIn, Queue::kDmaOut, Queue::kDmaRemote}) {
    EXPECT_EQ(commands_in_flight(board, static_cast<size_t>(queue)), 3u);
  }
  for (const Queue queue : {Queue::kMxu0, Queue::kMxu3, Queue::kVpu, Queue::kXlu}) {
    EXPECT_EQ(commands_in_flight(board, static_cast<size_t>(queue)), 7u);
  }
}

}  // namespace
}  // namespace tpu::spec
