// Fault logs of the processes of a pod become one.
#include "transport/worker/fault_logs.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tpu/error.hpp"

namespace tpu::driver::worker {
namespace {

std::string path_of(const std::string& name) { return ::testing::TempDir() + "fault_logs_" + name; }

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(FaultLogs, LinesComeByCycleThenByProcess) {
  const std::string path = path_of("merged");
  const std::vector<std::string> parts = {path + ".chip0", path + ".chip2", path + ".chip4"};
  FaultLogs logs(path, parts);
  std::ofstream(parts[0])
      << "[9] fault a\n[10] fault b\n[10] damage a\nfault 3 (line 9) never came\n";
  std::ofstream(parts[2]) << "[9] fault c\n[100] fault d\nfault 2 (line 4) never came\n[8] cut";
  logs.attached(0);
  logs.attached(2);  // 1 has not got its boards
  EXPECT_EQ(logs.merge(), "");
  EXPECT_EQ(text_of(path),
            "[8] cut\n[9] fault a\n[9] fault c\n[10] fault b\n[10] damage a\n[100] fault d\n"
            "fault 2 (line 4) never came\nfault 3 (line 9) never came\n");
  EXPECT_FALSE(std::filesystem::exists(parts[0]) || std::filesystem::exists(parts[2]));
}

TEST(FaultLogs, AMissingPartIsAnError) {
  const std::string path = path_of("none");
  FaultLogs logs(path, {path + ".chip0"});
  logs.attached(0);
  EXPECT_NE(logs.merge().find(path + ".chip0"), std::string::npos);
}

// The parts of the first run stay where they are, also when the second one has ended.
TEST(FaultLogs, ASecondRunWithTheSameLogIsRefused) {
  const std::string path = path_of("twice");
  const std::string part = path + ".chip0";
  FaultLogs logs(path, {part});
  logs.attached(0);
  std::ofstream(part) << "[9] fault a\n";
  try {
    const FaultLogs second(path, {part});
    FAIL() << "a log of two runs";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("another run"), std::string::npos) << error.message();
  }
  EXPECT_EQ(logs.merge(), "");
  EXPECT_EQ(text_of(path), "[9] fault a\n");
}

TEST(FaultLogs, PartsOfProcessesThatWereNotThereStay) {
  const std::string path = path_of("other");
  std::ofstream(path + ".chip0") << "[9] fault of another program\n";
  { const FaultLogs logs(path, {path + ".chip0"}); }
  EXPECT_TRUE(std::filesystem::exists(path + ".chip0"));
}

TEST(FaultLogs, OnlyARegularFileCanBeMerged) {
  for (const std::string& path : {std::string("/dev/null"), path_of("missing/log.txt")}) {
    try {
      const FaultLogs logs(path, {path + ".chip0"});
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace tpu::driver::worker
