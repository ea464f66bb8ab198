// The timeline's file: windows, and what becomes of it when it cannot be written. What Perfetto
// reads from one: tests/cli/timeline_file_test.py.
#include "timeline/timeline_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tpu::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TimelineOptions options(const std::string& path, uint64_t first = 0, uint64_t count = UINT64_MAX) {
  return {.path = path,
          .chips = 1,
          .cores_per_chip = 1,
          .numbers = {.mxus = 2, .clock_mhz = 940, .mxu_flops = 32768},
          .first_step = first,
          .step_count = count};
}

ProbeSource command(uint64_t sequence, uint64_t step) {
  return {.unit = static_cast<uint32_t>(spec::Queue::kDmaIn),
          .sequence = sequence,
          .step = step,
          .op_id = 3,
          .opcode = static_cast<uint8_t>(spec::Opcode::kDma)};
}

// A step in which two transfers overlap.
void run_step(TimelineSink& sink, uint64_t step) {
  const uint64_t at = 1000 * step + 100;
  sink.program({.cycle = at, .gang = spec::CoreSet(1), .launch = 1, .step = step, .begin = true});
  sink.start({.cycle = at + 10, .source = command(2 * step, step)});
  sink.start({.cycle = at + 20, .source = command(2 * step + 1, step)});
  sink.done({.cycle = at + 60, .source = command(2 * step, step), .start = at + 10});
  sink.done({.cycle = at + 90, .source = command(2 * step + 1, step), .start = at + 20});
  sink.program({.cycle = at + 100,
                .gang = spec::CoreSet(1),
                .launch = 1,
                .step = step,
                .begin = false,
                .complete = true});
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string error_of(const std::string& path) {
  const LaunchPrograms programs;
  try {
    const TimelineSink sink(options(path), programs);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(TimelineSink, CommandsThatOverlapLieOnTracksOfTheirOwn) {
  const std::string path = ::testing::TempDir() + "/lanes.pftrace";
  const LaunchPrograms programs;
  TimelineSink sink(options(path), programs);
  run_step(sink, 0);
  EXPECT_EQ(sink.finish(), "");
  EXPECT_THAT(content(path), HasSubstr("dma_in (2)"));
  EXPECT_THAT(content(path), Not(HasSubstr("dma_in (3)")));
  EXPECT_THAT(content(path), HasSubstr("op 3"));  // nobody has named the launch's program
}

TEST(TimelineSink, FaultsOnPurposeAreMarked) {
  const std::string path = ::testing::TempDir() + "/upsets.pftrace";
  const LaunchPrograms programs;
  TimelineSink sink(options(path), programs);
  run_step(sink, 0);
  sink.upset(
      {.cycle = 210, .fires = true, .kind = "hbm", .place = "core 0", .text = "a bit flips"});
  sink.upset({.cycle = 220, .kind = "hbm", .place = "core 0", .text = "the word is read"});
  EXPECT_EQ(sink.finish(), "");
  EXPECT_THAT(content(path), HasSubstr("fault on purpose: hbm, a bit flips"));
  EXPECT_THAT(content(path), HasSubstr("damage: hbm, the word is read"));
}

TEST(TimelineSink, AWindowHasItsStepsAlone) {
  const LaunchPrograms programs;
  std::vector<size_t> sizes;
  for (const uint64_t steps : std::initializer_list<uint64_t>{1, 2, 4}) {
    const std::string path = ::testing::TempDir() + "/window.pftrace";
    TimelineSink sink(options(path, 1, steps), programs);
    for (uint64_t step = 0; step < 6; ++step) {
      run_step(sink, step);
    }
    EXPECT_EQ(sink.finish(), "");
    sizes.push_back(content(path).size());
  }
  EXPECT_EQ(sizes[2] - sizes[1], 2 * (sizes[1] - sizes[0]));
}

TEST(TimelineSink, SaysThatNoStepOfTheWindowRan) {
  const LaunchPrograms programs;
  TimelineSink sink(options(::testing::TempDir() + "/late.pftrace", 7, 2), programs);
  run_step(sink, 0);
  EXPECT_THAT(sink.finish(), HasSubstr("of the steps 7 to 8 none ran; the board ran 1 step,"));
}

TEST(TimelineSink, AFullDiskIsToldAtTheEnd) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "this system has no /dev/full";
  }
  const LaunchPrograms programs;
  TimelineSink sink(options("/dev/full"), programs);
  for (uint64_t step = 0; step < 10'000; ++step) {  // more than the buffer
    run_step(sink, step);
  }
  EXPECT_THAT(sink.finish(), HasSubstr("writing /dev/full failed (is the disk full?)"));
}

TEST(TimelineSink, TwoRunsDoNotShareAFile) {
  const std::string path = ::testing::TempDir() + "/shared.pftrace";
  {
    const LaunchPrograms programs;
    const TimelineSink first(options(path), programs);
    EXPECT_THAT(error_of(path), HasSubstr("is already open for writing"));
  }
  EXPECT_EQ(error_of(path), "");
  EXPECT_THAT(error_of("/nonexistent/t.pftrace"), HasSubstr("No such file"));
}

TEST(TimelineSink, CoresOfAPodAreBelowTheirBoards) {
  const std::string path = ::testing::TempDir() + "pod.pftrace";
  TimelineOptions pod = options(path);
  pod.chips = 4;
  pod.board_of_chip = {0, 1, 0, 1};
  const LaunchPrograms programs;
  TimelineSink sink(pod, programs);
  run_step(sink, 0);
  EXPECT_EQ(sink.finish(), "");
  const std::string text = content(path);
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("board 0"), HasSubstr("board 1"),
                                     Not(HasSubstr("board 2")), HasSubstr("chip3.core0")));
}

}  // namespace
}  // namespace tpu::model
