#include "kernel/host_cache.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

using tpu::model::last_level_cache_bytes;

class HostCacheTest : public ::testing::Test {
 protected:
  HostCacheTest() { std::filesystem::remove_all(folder_); }
  ~HostCacheTest() override { std::filesystem::remove_all(folder_); }
  HostCacheTest(const HostCacheTest&) = delete;
  HostCacheTest& operator=(const HostCacheTest&) = delete;

  void add(const std::string& index, int level, const std::string& size) const {
    std::filesystem::create_directories(folder_ / index);
    std::ofstream(folder_ / index / "level") << level << '\n';
    std::ofstream(folder_ / index / "size") << size << '\n';
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("host_cache_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HostCacheTest, IsTheSizeOfTheHighestLevel) {
  add("index0", 1, "32K");
  add("index1", 1, "32K");
  add("index3", 3, "32768K");
  add("index2", 2, "1024K");
  std::ofstream(folder_ / "uevent") << "3\n";
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{32} << 20);
}

TEST_F(HostCacheTest, ReadsUnits) {
  add("index0", 2, "3M");
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{3} << 20);
  add("index1", 3, "1G");
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{1} << 30);
  add("index2", 4, "4096");
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{4096});
}

TEST_F(HostCacheTest, IsZeroWhereTheHostDoesNotSay) {
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{0});
  add("index0", 3, "");
  EXPECT_EQ(last_level_cache_bytes(folder_), uint64_t{0});
}

}  // namespace
