// Files: folders, full disks and missing folders are named; a file is replaced as a whole.
#include "file/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>

#include "check/host_room.hpp"
#include "tpu/error.hpp"

namespace {
const std::function<void(int)>* fsync_seen = nullptr;
}

// In the place of the library's: tells a test what is synced when.
extern "C" int fsync(int file) {
  if (fsync_seen != nullptr) {
    (*fsync_seen)(file);
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

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
  EXPECT_THAT(text_of([&] { make_folder("/dev/null/x"); }),
              HasSubstr("/dev/null/x: cannot create this folder"));
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

// Contents first, then the name, then the folder that holds it: a crash leaves the old file or the
// new one, whole.
TEST(Files, SyncedIsInThisOrder) {
  const fs::path root = fs::temp_directory_path() / ("tpu_synced_" + std::to_string(getpid()));
  fs::create_directories(root);
  const std::string file = (root / "f").string();
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  std::vector<std::string> seen;
  const std::function<void(int)> note = [&](int synced) {
    struct stat info {};
    ASSERT_EQ(::fstat(synced, &info), 0);
    std::string text;
    std::getline(std::ifstream(file), text);
    seen.push_back(fmt::format("{} of {} bytes, {} is there",
                               S_ISDIR(info.st_mode) ? "folder" : "file",
                               S_ISDIR(info.st_mode) ? 0 : info.st_size, text));
  };
  fsync_seen = &note;
  write_file(file, bytes_of("old"));
  EXPECT_THAT(seen, ::testing::IsEmpty());
  write_file(file, bytes_of("newer"), Durability::kSynced);
  EXPECT_THAT(seen, ::testing::ElementsAre("file of 5 bytes, old is there",
                                           "folder of 0 bytes, newer is there"));
  seen.clear();
  sync_file(file);
  EXPECT_THAT(seen, ::testing::ElementsAre("file of 5 bytes, newer is there"));
  fsync_seen = nullptr;
  fs::remove_all(root);
}

// Mapped files that another process cuts would end this one by SIGBUS.
class MappedFile : public ::testing::Test {
 protected:
  MappedFile() : path_(::testing::TempDir() + "mapped_file_" + std::to_string(getpid())) {
    write_file(path_, std::vector<std::byte>(kBytes, std::byte{1}));
  }
  ~MappedFile() override { fs::remove(path_); }

  static uint64_t sum(std::span<const std::byte> bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}, [](uint64_t all, std::byte b) {
      return all + std::to_integer<uint64_t>(b);
    });
  }
  std::string refusal(const FileBytes& bytes) const {
    try {
      bytes.check();
    } catch (const UnreadableFile& error) {
      return error.message();
    }
    return "accepted";
  }

  static constexpr size_t kBytes = 5 * 4096 + 100;
  const std::string path_;
};

TEST_F(MappedFile, IsReadAsItIs) {
  const FileBytes bytes(path_);
  EXPECT_EQ(bytes.use([](auto all) { return sum(all); }), kBytes);
  const FileBytes again(path_);
  fs::remove(path_);  // and one that takes its name is another file
  write_file(path_, std::vector<std::byte>(3));
  EXPECT_EQ(sum(bytes.get()), kBytes);
  EXPECT_EQ(refusal(bytes), "accepted");
}

TEST_F(MappedFile, IsRefusedByNameWhenItIsCut) {
  for (const size_t left : {size_t{0}, size_t{100}, size_t{4096}, kBytes - 1}) {
    write_file(path_, std::vector<std::byte>(kBytes, std::byte{1}));
    const FileBytes bytes(path_);
    const FileBytes other(path_);
    EXPECT_EQ(bytes.get()[0], std::byte{1});
    fs::resize_file(path_, left);
    EXPECT_LT(sum(bytes.get()), kBytes) << "what is lost is zero";
    EXPECT_THAT(
        refusal(bytes),
        HasSubstr(fmt::format("{}: changed while it was read ({} bytes at first, {} bytes now)",
                              path_, kBytes, left)));
    EXPECT_THROW(bytes.use([](auto all) { return sum(all); }), UnreadableFile);
    EXPECT_THROW(other.use([](auto) { throw std::runtime_error("damaged"); }), UnreadableFile)
        << "the reason is not what was read of it";
  }
}

TEST_F(MappedFile, IsAsItWasWhenItIsTouchedOrWrittenAnewWithTheSameBytes) {
  const FileBytes bytes(path_);
  const auto later = fs::last_write_time(path_) + std::chrono::seconds(5);
  fs::last_write_time(path_, later);
  EXPECT_EQ(refusal(bytes), "accepted");
  const std::vector<std::byte> same = read_file(path_);
  std::ofstream(path_, std::ios::binary | std::ios::in | std::ios::out)
      .write(reinterpret_cast<const char*>(same.data()), static_cast<std::streamsize>(same.size()));
  EXPECT_EQ(refusal(bytes), "accepted");
  EXPECT_EQ(bytes.use([](auto all) { return sum(all); }), kBytes);
  std::ofstream(path_, std::ios::binary | std::ios::in | std::ios::out) << "others";
  EXPECT_THAT(refusal(bytes), HasSubstr("with other contents"));
}

TEST_F(MappedFile, OfOneThatIsTooLargeToSumItsTimeIsWhatIsKnown) {
  fs::resize_file(path_, (uint64_t{256} << 20) + 1);
  const FileBytes bytes(path_);
  EXPECT_EQ(refusal(bytes), "accepted");
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(5));
  EXPECT_THAT(refusal(bytes), HasSubstr("a file of this size has no checksum"));
}

TEST_F(MappedFile, IsRefusedWhenItIsRewritten) {
  const FileBytes bytes(path_);
  std::ofstream(path_, std::ios::binary | std::ios::in | std::ios::out) << "others";
  EXPECT_THAT(refusal(bytes), HasSubstr("changed while it was read"));
}

// As behind an error of a disk: size and time are as they were.
TEST_F(MappedFile, IsRefusedWhenPagesWereLost) {
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  const FileBytes bytes(path_);
  fs::resize_file(path_, 4096);
  EXPECT_EQ(bytes.get()[2 * 4096], std::byte{0});
  fs::resize_file(path_, kBytes);
  const timespec times[] = {info.st_atim, info.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  EXPECT_THAT(refusal(bytes), HasSubstr("some of its bytes cannot be read from the disk"));
  EXPECT_EQ(refusal(FileBytes(path_)), "accepted") << "what is opened anew is as it is now";
}

TEST_F(MappedFile, OtherFaultsEndTheProcessAsBefore) {
  const FileBytes bytes(path_);  // the handler is there
  const pid_t child = fork();
  if (child == 0) {
    const int file = ::open(path_.c_str(), O_RDWR);
    auto* const data =
        static_cast<volatile char*>(::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0));
    static_cast<void>(::ftruncate(file, 0));
    _exit(data[0]);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
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
