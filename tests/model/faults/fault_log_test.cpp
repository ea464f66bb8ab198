// The order of the lines of a fault log.
#include "faults/fault_log.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tpu::model {
namespace {

std::string path_of(const std::string& name) { return ::testing::TempDir() + "fault_log_" + name; }

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(FaultLog, ABoardAloneWritesAtOnce) {
  const std::string path = path_of("alone");
  FaultLog log(path, 1);
  EXPECT_FALSE(log.write(7, {.board = 0, .word = "fault"}, "[7] b\n"));
  EXPECT_EQ(text_of(path), "[7] b\n");
  EXPECT_FALSE(log.write(7, {.board = 0, .word = "damage"}, "[7] a\n"));
  EXPECT_EQ(log.finish("the end\n"), "");
  EXPECT_EQ(text_of(path), "[7] b\n[7] a\nthe end\n");
}

TEST(FaultLog, LinesOfACycleComeByBoardWordAndPlace) {
  const std::string path = path_of("pod");
  FaultLog log(path, 3);
  EXPECT_TRUE(log.write(0, {.board = 1}, "[0] board 1\n"));
  EXPECT_TRUE(log.write(7, {.board = 2}, "[7] board 2\n"));
  EXPECT_EQ(text_of(path), "[0] board 1\n");
  const auto hbm = [](std::string_view word, uint32_t unit) {
    return FaultLog::Place{.board = 0, .word = word, .kind = "hbm", .unit = unit};
  };
  EXPECT_TRUE(log.write(7, hbm("fault", 2), "[7] fault in 2\n"));
  EXPECT_TRUE(log.write(7, hbm("damage", 10), "[7] damage in 10\n"));
  EXPECT_TRUE(log.write(7, hbm("damage", 9), "[7] damage in 9, b\n"));
  EXPECT_TRUE(log.write(7, hbm("damage", 9), "[7] damage in 9, a\n"));
  log.write_before(7);
  EXPECT_EQ(text_of(path), "[0] board 1\n") << "more may come in cycle 7";
  log.write_before(8);
  const std::string seven =
      "[0] board 1\n[7] damage in 9, a\n[7] damage in 9, b\n[7] damage in 10\n[7] fault in 2\n"
      "[7] board 2\n";
  EXPECT_EQ(text_of(path), seven);
  EXPECT_TRUE(log.write(9, {.board = 1}, "[9] board 1\n"));
  EXPECT_EQ(log.finish("fault 1 never came\n"), "");
  EXPECT_EQ(text_of(path), seven + "[9] board 1\nfault 1 never came\n");
}

}  // namespace
}  // namespace tpu::model
