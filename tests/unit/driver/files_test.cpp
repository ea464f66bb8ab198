// Files: folders, full disks and missing folders are named; a file is replaced as a whole.
#include "cli/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tpu/error.hpp"

namespace tpu::driver {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Files, FoldersAndFullDisksAreErrors) {
  const auto text_of = [](auto action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  };
  const std::string folder = fs::temp_directory_path().string();
  const std::vector<std::byte> bytes(10);
  EXPECT_THAT(text_of([&] { read_file(folder); }), HasSubstr("is a folder; name a file"));
  EXPECT_THAT(text_of([&] { write_file(folder, bytes); }), HasSubstr("is a folder"));
  EXPECT_THAT(text_of([&] { write_file("/dev/full", bytes); }), HasSubstr("No space left"));
  EXPECT_THAT(text_of([&] { make_folder("/dev/null/x"); }), HasSubstr("/dev/null/x: the folder"));
  EXPECT_THAT(text_of([&] { write_file("/nowhere/x", bytes); }), HasSubstr("must exist"));
}

TEST(Files, ALinkStaysALink) {
  const fs::path root = fs::temp_directory_path() / ("tpu_files_" + std::to_string(getpid()));
  fs::create_directories(root);
  std::ofstream(root / "real") << "old";
  fs::create_symlink("real", root / "link");
  write_file((root / "link").string(), std::vector<std::byte>(3));
  EXPECT_TRUE(fs::is_symlink(root / "link"));
  EXPECT_EQ(read_file((root / "real").string()), std::vector<std::byte>(3));
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 2);
  fs::remove_all(root);
}

}  // namespace
}  // namespace tpu::driver
