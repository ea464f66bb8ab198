// The cache of executables: what a key depends on, and that files of any state do no harm.
#include "program_cache.hpp"

#include <gtest/gtest.h>

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
  const std::set<std::string> keys = {key_of("a"),
                                      key_of("b"),
                                      key_of("a", {"core.clock_mhz=700"}),
                                      key_of("a", {"hbm.gbps_per_chip=450"}),
                                      key_of("a", {}, {1, 0}),
                                      key_of("a", {}, {0, 1}),
                                      key_of("a", {}, {0, 1, 2, 3}),
                                      program_key(bytes_of("a"), spec::load_board("v2_8"), {})};
  EXPECT_EQ(keys.size(), 8U);
  EXPECT_EQ(keys.begin()->size(), 64U);
}

TEST(ProgramKey, IsTheSameForTheSame) {
  EXPECT_EQ(key_of("a"), key_of("a"));
  EXPECT_EQ(key_of("a", {"core.clock_mhz=940"}), key_of("a")) << "the board has these numbers";
}

class ProgramCacheTest : public testing::Test {
 protected:
  ~ProgramCacheTest() override { fs::remove_all(folder_); }

  static exe::ExecutableT program() {
    return compiler::assemble(driver::test::copy_program(), "test.s", spec::load_board("v3_8"));
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const std::string folder_ = testing::TempDir() + "program_cache/inner";
};

TEST_F(ProgramCacheTest, GivesWhatItKeeps) {
  const ProgramCache cache(folder_);
  EXPECT_FALSE(cache.find("key").has_value());
  cache.keep("key", program());
  const auto found = cache.find("key");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(exe::write_executable(*found), exe::write_executable(program()));
  EXPECT_FALSE(cache.find("other").has_value());
  EXPECT_EQ(files(), 1U) << "something is left of writing";
}

TEST_F(ProgramCacheTest, ADamagedFileIsNone) {
  const ProgramCache cache(folder_);
  cache.keep("key", program());
  fs::resize_file(folder_ + "/key.tpuexe", 100);
  EXPECT_FALSE(cache.find("key").has_value());
  cache.keep("key", program());
  EXPECT_TRUE(cache.find("key").has_value());
}

TEST_F(ProgramCacheTest, AFolderThatCannotBeWrittenKeepsNothing) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/file") << "no folder";
  const ProgramCache cache(folder_ + "/file");
  cache.keep("key", program());
  EXPECT_FALSE(cache.find("key").has_value());
  ProgramCache("").keep("key", program());
  EXPECT_FALSE(ProgramCache("").find("key").has_value());
}

}  // namespace
}  // namespace tpu::client
