// Files that have no end or are none, and outputs that would replace an input.
#include "file/whole_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tpu::spec {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // of a writer whose reader has had enough
    folder_ =
        fs::path(testing::TempDir()) /
        ("whole_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  template <typename Action>
  static std::string refusal(Action action) {
    try {
      action();
    } catch (const FileError& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(WholeFile, FilesAndPipesAreReadToTheirEnd) {
  const std::string text(200'000, 'x');
  std::ofstream(path("a")) << text;
  EXPECT_EQ(read_whole_file(path("a")).size(), text.size());
  EXPECT_EQ(read_whole_file(path("a"), text.size()).size(), text.size());
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path("pipe")) << text; });
  EXPECT_EQ(read_whole_file(path("pipe")).size(), text.size());
  writer.join();
}

TEST_F(WholeFile, WhatHasNoEndIsRefused) {
  EXPECT_THAT(refusal([] { read_whole_file("/dev/zero"); }),
              HasSubstr("/dev/zero: is a device; name a file"));
  EXPECT_THAT(refusal([&] { read_whole_file(folder_.string()); }),
              HasSubstr("is a folder; name a file"));
  EXPECT_THAT(refusal([&] { read_whole_file(path("none")); }),
              HasSubstr("none: cannot be opened: No such file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path("pipe")) << std::string(150'000, 'x'); });
  EXPECT_THAT(refusal([&] { read_whole_file(path("pipe"), 100'000); }),
              HasSubstr("pipe: is too large: expected at most 100000 bytes"));
  writer.join();
  std::ofstream(path("a")) << "1234";
  EXPECT_THAT(refusal([&] { read_whole_file(path("a"), 3); }),
              HasSubstr("is too large: expected at most 3 bytes"));
}

TEST_F(WholeFile, AnInputIsNoOutputByAnyName) {
  std::ofstream(path("in")) << "1";
  std::ofstream(path("other")) << "2";
  fs::create_symlink("in", path("link"));
  fs::create_hard_link(path("in"), path("hard"));
  const std::vector<std::string> inputs = {path("none"), path("in"), "/dev/null"};
  const std::string around = "../" + folder_.filename().string() + "/in";
  for (const std::string& name : std::vector<std::string>{"in", "link", "hard", around}) {
    EXPECT_THAT(refusal([&] { refuse_overwrite(path(name), inputs); }),
                HasSubstr(path(name) + ": would be written over the input " + path("in")));
  }
  for (const std::string& free : {path("other"), path("none"), std::string("/dev/null")}) {
    EXPECT_EQ(refusal([&] { refuse_overwrite(free, inputs); }), "accepted") << free;
  }
}

}  // namespace
}  // namespace tpu::spec
