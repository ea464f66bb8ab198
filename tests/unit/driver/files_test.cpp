// Files: folders, full disks and missing folders are named; a file is replaced as a whole.
#include "files/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "src/memory/host_room.hpp"
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

// The kernel would give the memory and end the process when it is used.
TEST(Files, LargerThanTheHostsMemoryAreRefused) {
  const std::string path = "files_huge.bin";
  std::ofstream(path) << 'x';
  std::error_code failed;
  std::filesystem::resize_file(path, host_room() + (uint64_t{1} << 40), failed);  // a hole
  if (failed) {
    std::filesystem::remove(path);
    GTEST_SKIP() << "the file system has no files of this size: " << failed.message();
  }
  try {
    read_file(path);
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("bytes of host memory"));
    EXPECT_THAT(error.message(), ::testing::HasSubstr(path));
  }
  EXPECT_THROW(host_array(DType::kU8, {int64_t{1} << 60}), Error);
  std::filesystem::remove(path);
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
