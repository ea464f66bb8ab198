// The cache of executables: what a key depends on, and that files of any state do no harm.
#include "program_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "asm/assembler.hpp"
#include "board/board_loader.hpp"
#include "tests/driver/copy_program.hpp"

namespace tpu::client {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string key_of(std::string_view artifact, const std::vector<std::string>& overrides = {},
                   const std::vector<int>& cores = {}) {
  return program_key(bytes_of(artifact), spec::load_board("v3_8", overrides), cores);
}

TEST(ProgramKey, DependsOnArtifactBoardAndCores) {
  const std::set<std::string> keys = {
      key_of("a"),
      key_of("b"),
      key_of("a", {"core.clock_mhz=700"}),
      key_of("a", {"hbm.gbps_per_chip=450"}),
      key_of("a", {}, {1, 0}),
      key_of("a", {}, {0, 1}),
      key_of("a", {}, {0, 1, 2, 3}),
      program_key(bytes_of("a"), spec::load_board("v2_8"), {}),
      program_key(bytes_of("a"), spec::load_board("v3_8"), {}, "0")};
  EXPECT_EQ(keys.size(), 9U);
  EXPECT_EQ(keys.begin()->size(), 64U);
}

TEST(ProgramKey, IsTheSameForTheSame) {
  EXPECT_EQ(key_of("a"), key_of("a"));
  EXPECT_EQ(key_of("a", {"core.clock_mhz=940"}), key_of("a")) << "the board has these numbers";
}

constexpr uint64_t kRoom = uint64_t{1} << 30;

class ProgramCacheTest : public testing::Test {
 protected:
  ~ProgramCacheTest() override { fs::remove_all(fs::path(folder_).parent_path()); }

  static exe::ExecutableT program() {
    return compiler::assemble(driver::test::copy_program(), "test.s", spec::load_board("v3_8"));
  }
  ProgramCache cache(uint64_t limit = kRoom) { return cache(folder_, limit); }
  ProgramCache cache(const std::string& folder, uint64_t limit = kRoom) {
    return {folder, limit, [this](const std::string& text) { said_.push_back(text); }};
  }
  std::string file(const std::string& key) const { return folder_ + "/" + key + ".cached"; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  // Of this process: tests run side by side.
  const std::string folder_ =
      testing::TempDir() + "program_cache." + std::to_string(getpid()) + "/inner";
  std::vector<std::string> said_;
};

TEST_F(ProgramCacheTest, GivesWhatItKeeps) {
  ProgramCache kept = cache();
  EXPECT_FALSE(kept.find("key").has_value());
  kept.keep("key", program());
  const auto found = kept.find("key");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(exe::write_executable(*found), exe::write_executable(program()));
  EXPECT_FALSE(kept.find("other").has_value());
  EXPECT_EQ(files(), 1U) << "something is left of writing";
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(ProgramCacheTest, ADamagedFileIsNone) {
  ProgramCache kept = cache();
  kept.keep("key", program());
  fs::resize_file(file("key"), 100);
  EXPECT_FALSE(kept.find("key").has_value());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("key.cached: ")));
  kept.keep("key", program());
  EXPECT_TRUE(kept.find("key").has_value());
}

TEST_F(ProgramCacheTest, WhatWasNotUsedForLongestGoes) {
  cache().keep("a", program());
  const uint64_t bytes = fs::file_size(file("a"));
  ProgramCache kept = cache(3 * bytes + bytes / 2);
  for (const char* key : {"a", "b", "c"}) {
    kept.keep(key, program());
    usleep(20'000);  // times of access have the resolution of the kernel's clock
  }
  EXPECT_TRUE(kept.find("a").has_value());
  usleep(20'000);
  kept.keep("d", program());
  EXPECT_FALSE(kept.find("b").has_value());
  for (const char* key : {"a", "c", "d"}) {
    EXPECT_TRUE(kept.find(key).has_value()) << key;
  }
}

// A file is what its head says, whatever its name.
TEST_F(ProgramCacheTest, AnotherProgramsFileIsNotRun) {
  ProgramCache kept = cache();
  kept.keep("a", program());
  fs::rename(file("a"), file("b"));
  EXPECT_FALSE(kept.find("b").has_value());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("b.cached: is not a file of the cache, or belongs to "
                                           "another program; programs are compiled without it")));
  kept.keep("b", program());
  EXPECT_FALSE(kept.find("b").has_value()) << "what is not known is not replaced either";
}

TEST_F(ProgramCacheTest, ALinkIsNotFollowed) {
  cache().keep("a", program());
  fs::rename(file("a"), folder_ + "/elsewhere");
  fs::create_symlink("elsewhere", file("a"));
  ProgramCache kept = cache();
  EXPECT_FALSE(kept.find("a").has_value());
  kept.keep("a", program());
  EXPECT_TRUE(fs::is_symlink(file("a")));
  EXPECT_EQ(said_.size(), 1U) << "it is said once";
}

TEST_F(ProgramCacheTest, AnotherUsersFileIsNeitherRunNorRemoved) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give a file to another user";
  }
  cache().keep("a", program());
  ASSERT_EQ(::chown(file("a").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(cache().find("a").has_value());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("a.cached: belongs to the user 65534")));
  cache(1).keep("b", program());
  EXPECT_TRUE(fs::exists(file("a")));
}

// Room is made of what the cache has written, and of nothing else that lies there.
TEST_F(ProgramCacheTest, FilesOfOthersAreLeft) {
  ProgramCache kept = cache(1);
  kept.keep("a", program());
  const std::string weights = file("weights");
  const std::string half = file("a") + ".0123456789abcdef.part";
  const std::string own = file("b") + ".0123456789abcdef.part";
  const std::string fresh = file("b") + ".0123456789abcdee.part";
  std::ofstream(weights) << "of another program";
  std::ofstream(half) << "of another program";
  kept.keep("b", program());
  EXPECT_FALSE(fs::exists(file("a"))) << "the limit";
  for (const std::string& path : {own, fresh}) {
    fs::copy_file(file("b"), path);
  }
  for (const std::string& path : {half, own}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  kept.keep("c", program());
  EXPECT_TRUE(fs::exists(weights));
  EXPECT_TRUE(fs::exists(half));
  EXPECT_FALSE(fs::exists(own)) << "half written by a process that is gone";
  EXPECT_TRUE(fs::exists(fresh)) << "another process may be writing it";
}

TEST_F(ProgramCacheTest, AFolderThatCannotBeWrittenKeepsNothing) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/file") << "no folder";
  ProgramCache kept = cache(folder_ + "/file");
  kept.keep("key", program());
  EXPECT_FALSE(kept.find("key").has_value());
  EXPECT_EQ(said_.size(), 1U);
  cache("").keep("key", program());
  EXPECT_FALSE(cache("").find("key").has_value());
  EXPECT_EQ(said_.size(), 1U) << "no cache is wanted";
}

// As $HOME of another user, and a link that leads to itself.
TEST_F(ProgramCacheTest, AFolderThatCannotBeReadIsSaidOnceAndNoError) {
  fs::create_directories(folder_);
  const fs::path loop = fs::path(folder_) / "loop";
  fs::create_symlink("loop", loop);
  {
    ProgramCache kept = cache(loop.string());
    EXPECT_FALSE(kept.find("key").has_value());
    kept.keep("key", program());
    EXPECT_THAT(said_, ElementsAre(HasSubstr("Too many levels of symbolic links")));
  }
  if (geteuid() != 0) {
    fs::permissions(folder_, fs::perms::none);
  } else {
    GTEST_SKIP() << "root reads every folder; tests/pjrt has the same with another user";
  }
  ProgramCache kept = cache(folder_ + "/closed");
  EXPECT_FALSE(kept.find("key").has_value());
  kept.keep("key", program());
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_THAT(said_.back(), HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace tpu::client
