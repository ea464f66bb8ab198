// The text trace: its lines, and what becomes of it when the disk is full or two runs want one
// file.
#include "kernel/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tpu::model {
namespace {

using ::testing::HasSubstr;

CommandTrace command() {
  return {.issued = 1,
          .start = 5,
          .free_at = 6,
          .done = 90,
          .pc = 12,
          .op_id = 3,
          .step = 5'000'000'000,
          .core = 2,
          .queue = 0,
          .opcode = 2};
}

std::string error_of(const std::string& path) {
  try {
    TextTraceSink sink(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(TextTrace, WritesALineACommand) {
  const std::string path = ::testing::TempDir() + "/trace.txt";
  TextTraceSink sink(path);
  sink.command(command());
  EXPECT_EQ(sink.finish(), "");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "5 90 2 mxu0 matmul op=3 pc=12 step=5000000000 free=6\n");
}

TEST(TextTrace, AFullDiskIsToldAtTheEnd) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "this system has no /dev/full";
  }
  TextTraceSink sink("/dev/full");
  sink.command(command());
  EXPECT_THAT(sink.finish(), HasSubstr("writing /dev/full failed"));
}

TEST(TextTrace, TwoRunsDoNotShareAFile) {
  const std::string path = ::testing::TempDir() + "/shared_trace.txt";
  {
    TextTraceSink first(path);
    EXPECT_THAT(error_of(path), HasSubstr("is being written by another run"));
    EXPECT_EQ(error_of("/dev/null"), "");
    EXPECT_EQ(error_of("/dev/null"), "");
  }
  EXPECT_EQ(error_of(path), "");
  EXPECT_THAT(error_of("/nonexistent/t.txt"), HasSubstr("No such file"));
}

}  // namespace
}  // namespace tpu::model
