// The text trace: its lines, and what becomes of it when the disk is full or two runs want one
// file.
#include "probe/text_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tpu/spec/console_regs.hpp"
#include "tpu/spec/hart_map.h"

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

DoneEvent command() {
  return {.cycle = 90,
          .source = {.core = 2,
                     .unit = 0,
                     .sequence = 8,
                     .step = 5'000'000'000,
                     .pc = 12,
                     .op_id = 3,
                     .opcode = 2},
          .issued = 1,
          .start = 5,
          .free_at = 6};
}

std::string error_of(const std::string& path) {
  try {
    TextSink sink(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(TextSink, WritesALineForACommandAMarkAndAWordOfFirmware) {
  const std::string path = ::testing::TempDir() + "/trace.txt";
  TextSink sink(path);
  ProbeSet probes;
  sink.listen(probes);
  probes.tell<DoneEvent>(kAllCores, ProbeEvent::kDone, &ProbeSink::done, command);
  probes.tell<MarkEvent>(kAllCores, ProbeEvent::kMark, &ProbeSink::mark, [] {
    return MarkEvent{.cycle = 91, .source = {.core = 2, .op_id = 7}, .begin = true};
  });
  for (const bool write : {false, true}) {
    for (const uint32_t reg : {spec::console::kTrace, spec::console::kChar}) {
      probes.tell<HartEvent>(kAllCores, ProbeEvent::kHart, &ProbeSink::hart, [&] {
        return HartEvent{.cycle = 92,
                         .core = 3,
                         .kind = HartEvent::Kind::kMmio,
                         .address = TPU_HART_CONSOLE_BASE + reg,
                         .data = 0x0a00'0005,
                         .write = write};
      });
    }
  }
  EXPECT_EQ(sink.finish(), "");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(),
            "5 90 2 mxu0 matmul op=3 pc=12 step=5000000000 free=6\n91 2 mark begin op=7\n"
            "92 3 hart word=0x0a000005\n");
}

TEST(TextSink, WritesFaultsOnPurposeAndTheirDamage) {
  const std::string path = ::testing::TempDir() + "/trace_faults.txt";
  TextSink sink(path);
  ProbeSet probes;
  sink.listen(probes);
  for (const bool fires : {true, false}) {
    probes.tell<UpsetEvent>(kAllCores, ProbeEvent::kUpset, &ProbeSink::upset, [&] {
      return UpsetEvent{.cycle = fires ? 8U : 9U,
                        .core = 3,
                        .fires = fires,
                        .kind = "vmem",
                        .place = "core 3",
                        .text = fires ? "a bit flips" : "the word is read"};
    });
  }
  EXPECT_EQ(sink.finish(), "");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(),
            "8 3 fault vmem core 3: a bit flips\n9 3 damage vmem core 3: the word is read\n");
}

TEST(TextSink, AFullDiskIsToldAtTheEnd) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "this system has no /dev/full";
  }
  TextSink sink("/dev/full");
  sink.done(command());
  EXPECT_THAT(sink.finish(), HasSubstr("writing /dev/full failed"));
}

TEST(TextSink, TwoRunsDoNotShareAFile) {
  const std::string path = ::testing::TempDir() + "/shared_trace.txt";
  {
    TextSink first(path);
    EXPECT_THAT(error_of(path), HasSubstr("is already open for writing"));
    EXPECT_EQ(error_of("/dev/null"), "");
    EXPECT_EQ(error_of("/dev/null"), "");
  }
  EXPECT_EQ(error_of(path), "");
  EXPECT_THAT(error_of("/nonexistent/t.txt"), HasSubstr("No such file"));
}

}  // namespace
}  // namespace tpu::model
