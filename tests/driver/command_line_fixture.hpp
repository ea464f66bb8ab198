// The programs run as processes, as a user runs them: a folder for each test, and what a command
// said.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace tpu::driver::test {

struct Result {
  int code = -1;
  std::string text;  // both streams
};

inline Result call(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Result r;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    r.text.append(buffer.data(), n);
  }
  r.code = WEXITSTATUS(pclose(pipe));
  return r;
}

class CommandLineFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::temp_directory_path() / (std::string("tpu_") + info->test_suite_name() +
                                                  "_" + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

}  // namespace tpu::driver::test
