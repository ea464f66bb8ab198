// Files that are written as a whole: two writers of one target, links in the way, writers that are
// killed or fail; with files that have no name until they are finished, and with random names.
#include "file/output_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace tpu::spec {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

class OutputFileTest : public ::testing::TestWithParam<Unfinished> {
 protected:
  OutputFileTest()
      : folder_(fs::path(::testing::TempDir()) / ("output_file_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string text(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static void add(OutputFile& to, std::string_view text) { to.add(std::as_bytes(std::span(text))); }

  const fs::path folder_;
};

// As two processes with one number, in two containers or on two hosts.
TEST_P(OutputFileTest, TwoWritersOfOneTargetDoNotMix) {
  OutputFile a(file("o"), GetParam());
  OutputFile b(file("o"), GetParam());
  for (int i = 0; i < 3; ++i) {
    add(a, "aaa");
    add(b, "b");
  }
  EXPECT_FALSE(fs::exists(file("o")));
  a.finish();
  EXPECT_EQ(text("o"), "aaaaaaaaa");
  b.finish();
  EXPECT_EQ(text("o"), "bbb");
  EXPECT_THAT(names(), ElementsAre("o"));
}

// Names that can be guessed, of this process, lead elsewhere.
TEST_P(OutputFileTest, APlantedLinkIsNotFollowed) {
  std::ofstream(file("victim")) << "precious";
  const std::string guessed = "o." + std::to_string(getpid()) + ".part";
  fs::create_symlink("victim", file(guessed));
  OutputFile out(file("o"), GetParam());
  add(out, "new");
  out.finish();
  EXPECT_EQ(text("o"), "new");
  EXPECT_EQ(text("victim"), "precious");
  EXPECT_TRUE(fs::is_symlink(file(guessed)));
}

TEST_P(OutputFileTest, ALinkStaysAndWhatItPointsToIsReplaced) {
  std::ofstream(file("real")) << "old";
  fs::permissions(file("real"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real", file("link"));
  OutputFile out(file("link"), GetParam());
  add(out, "new");
  out.finish(true);
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_EQ(text("real"), "new");
  EXPECT_EQ(fs::status(file("real")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_THAT(names(), ElementsAre("link", "real"));
}

TEST_P(OutputFileTest, WhatIsNotFinishedLeavesTheOldOneAndNothingElse) {
  std::ofstream(file("o")) << "old";
  {
    OutputFile out(file("o"), GetParam());
    add(out, "half");
  }
  EXPECT_EQ(text("o"), "old");
  EXPECT_THAT(names(), ElementsAre("o"));
  fs::remove(file("o"));
  {
    OutputFile out(file("o"), GetParam());
    add(out, "half");
    fs::create_directory(file("o"));  // finish() cannot replace it
    EXPECT_THROW(out.finish(), std::system_error);
  }
  EXPECT_THAT(names(), ElementsAre("o"));
  EXPECT_THROW(OutputFile(file("o"), GetParam()), std::system_error) << "a folder";
  EXPECT_THROW(OutputFile(file("none/o"), GetParam()), std::system_error);
}

TEST_P(OutputFileTest, NamesAsLongAsTheyMayBeAreWritten) {
  const std::string name(255, 'n');
  OutputFile out(file(name), GetParam());
  add(out, "new");
  out.finish();
  EXPECT_EQ(text(name), "new");
}

TEST_P(OutputFileTest, AWriterThatIsKilledLeavesAtMostAFileOfItsSuffix) {
  const pid_t child = fork();
  if (child == 0) {
    OutputFile out(file("o"), GetParam());
    add(out, "half");
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  if (GetParam() == Unfinished::kRandomName) {
    ASSERT_EQ(names().size(), 1U);
    EXPECT_EQ(part_target(names()[0]), "o");
    return;
  }
  const int unnamed = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (unnamed < 0) {
    GTEST_SKIP() << "this file system has no files without a name";
  }
  ::close(unnamed);
  EXPECT_THAT(names(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ways, OutputFileTest,
                         ::testing::Values(Unfinished::kWithoutName, Unfinished::kRandomName),
                         [](const auto& way) {
                           return way.param == Unfinished::kRandomName ? "RandomName"
                                                                       : "WithoutName";
                         });

TEST(PartTarget, IsThatOfNamesThatAreGivenAlone) {
  EXPECT_EQ(part_target("step7.safetensors.0123456789abcdef.part"), "step7.safetensors");
  for (const char* name : {"o.part", "o.123.part", "o.0123456789abcdeg.part", "o.0123456789abcdef",
                           ".0123456789abcdef.part", "0123456789abcdef.part", ""}) {
    EXPECT_EQ(part_target(name), "") << name;
  }
}

}  // namespace
}  // namespace tpu::spec
