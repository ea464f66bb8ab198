// The command tpuboard inside a test: its words in, exit code and both streams out.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "format/npy.hpp"
#include "tests/driver/program_builder.hpp"

namespace tpu::driver::test {

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("tpuboard_cli_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void save(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  int call(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "tpuboard");
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(argument.c_str());
    }
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = tpuboard_main(static_cast<int>(argv.size()), argv.data());
    out_ = ::testing::internal::GetCapturedStdout();
    error_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  // y (donated from x, cut over the cores), z replicated.
  void save_program() {
    ProgramBuilder builder(8);
    builder.argument(DType::kF32, {16, 4}, true);
    builder.argument(DType::kBf16, {3});
    builder.result(DType::kF32, {16, 4}, true, 0);
    builder.result(DType::kBf16, {3}, false, 1);
    write_file(path("p.tpuexe"), builder.bytes());
    write_npy(path("x.npy"), counting(DType::kF32, {16, 4}));
    write_npy(path("b.npy"), counting(DType::kBf16, {3}));
  }

  std::filesystem::path folder_;
  std::string out_;
  std::string error_;
};

}  // namespace tpu::driver::test
