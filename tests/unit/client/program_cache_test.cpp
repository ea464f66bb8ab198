// The cache of executables: what a key depends on, and that files of any state do no harm.
#include "program_cache.hpp"

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
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  // Of this process: tests run side by side.
  const std::string folder_ =
      testing::TempDir() + "program_cache." + std::to_string(getpid()) + "/inner";
};

TEST_F(ProgramCacheTest, GivesWhatItKeeps) {
  ProgramCache cache(folder_, kRoom);
  EXPECT_FALSE(cache.find("key").has_value());
  cache.keep("key", program());
  const auto found = cache.find("key");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(exe::write_executable(*found), exe::write_executable(program()));
  EXPECT_FALSE(cache.find("other").has_value());
  EXPECT_EQ(files(), 1U) << "something is left of writing";
}

TEST_F(ProgramCacheTest, ADamagedFileIsNone) {
  ProgramCache cache(folder_, kRoom);
  cache.keep("key", program());
  fs::resize_file(folder_ + "/key.tpuexe", 100);
  EXPECT_FALSE(cache.find("key").has_value());
  cache.keep("key", program());
  EXPECT_TRUE(cache.find("key").has_value());
}

TEST_F(ProgramCacheTest, WhatWasNotUsedForLongestGoes) {
  const uint64_t bytes = exe::write_executable(program()).size();
  ProgramCache cache(folder_, 3 * bytes + bytes / 2);
  for (const char* key : {"a", "b", "c"}) {
    cache.keep(key, program());
    usleep(20'000);  // times of access have the resolution of the kernel's clock
  }
  EXPECT_TRUE(cache.find("a").has_value());
  usleep(20'000);
  cache.keep("d", program());
  EXPECT_FALSE(cache.find("b").has_value());
  for (const char* key : {"a", "c", "d"}) {
    EXPECT_TRUE(cache.find(key).has_value()) << key;
  }
}

TEST_F(ProgramCacheTest, WhatAProcessLeftHalfWrittenGoes) {
  fs::create_directories(folder_);
  const fs::path old = folder_ + "/key.tpuexe.123.0";
  const fs::path fresh = folder_ + "/key.tpuexe.124.0";
  for (const fs::path& path : {old, fresh}) {
    std::ofstream(path) << "half";
  }
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ProgramCache(folder_, kRoom).keep("other", program());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "another process may be writing it";
}

TEST_F(ProgramCacheTest, AFolderThatCannotBeWrittenKeepsNothing) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/file") << "no folder";
  ProgramCache cache(folder_ + "/file", kRoom);
  cache.keep("key", program());
  EXPECT_FALSE(cache.find("key").has_value());
  ProgramCache("", kRoom).keep("key", program());
  EXPECT_FALSE(ProgramCache("", kRoom).find("key").has_value());
}

}  // namespace
}  // namespace tpu::client
