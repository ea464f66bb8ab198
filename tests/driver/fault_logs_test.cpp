// Fault logs of the processes of a pod become one.
#include "transport/worker/fault_logs.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tpu::driver::worker {
namespace {

std::string path_of(const std::string& name) { return ::testing::TempDir() + "fault_logs_" + name; }

TEST(FaultLogs, LinesComeByCycleThenByProcess) {
  const std::string path = path_of("merged");
  const std::vector<std::string> parts = {path + ".chip0", path + ".chip2", path + ".chip4"};
  std::ofstream(parts[0])
      << "[9] fault a\n[10] fault b\n[10] damage a\nfault 3 (line 9) never came\n";
  std::ofstream(parts[2]) << "[9] fault c\n[100] fault d\nfault 2 (line 4) never came\n[8] cut";
  EXPECT_EQ(merge_fault_logs(parts, path), "") << "one of them is missing";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(),
            "[8] cut\n[9] fault a\n[9] fault c\n[10] fault b\n[10] damage a\n[100] fault d\n"
            "fault 2 (line 4) never came\nfault 3 (line 9) never came\n");
  EXPECT_FALSE(std::filesystem::exists(parts[0]) || std::filesystem::exists(parts[2]));
}

TEST(FaultLogs, WithoutPartsThereIsNoLog) {
  const std::string path = path_of("none");
  EXPECT_EQ(merge_fault_logs({path + ".chip0"}, path), "");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FaultLogs, PartsStayWhereTheLogCannotBeWritten) {
  const std::string part = path_of("part");
  std::ofstream(part) << "[9] fault a\n";
  const std::string error = merge_fault_logs({part}, path_of("missing/log.txt"));
  EXPECT_NE(error.find("missing/log.txt"), std::string::npos) << error;
  EXPECT_TRUE(std::filesystem::exists(part));
}

}  // namespace
}  // namespace tpu::driver::worker
