// Log lines of the firmware: printf's conversions over words.
#include "mgmt/log_format.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "terminal/printable_text.hpp"

namespace tpu::model {
namespace {

std::string line_of(const std::string& format, const std::vector<uint32_t>& args = {}) {
  return format_log(format, args, [](uint32_t address) {
    return address == 0x100 ? std::string("name") : std::string();
  });
}

TEST(LogFormat, FillsInWords) {
  EXPECT_EQ(line_of("plain"), "plain");
  EXPECT_EQ(line_of("%u of %d", {4000000000U, 0xFFFFFFFF}), "4000000000 of -1");
  EXPECT_EQ(line_of("%i %o %x %X %c %%", {7, 8, 0xab, 0xab, 0x741}), "7 10 ab AB A %");
  EXPECT_EQ(line_of("[%08x] [%-5u] [%5d] [%+d] [%#x]", {0x12, 3, 4, 5, 6}),
            "[00000012] [3    ] [    4] [+5] [0x6]");
  EXPECT_EQ(line_of("%p", {0x20000000}), "0x20000000");
  EXPECT_EQ(line_of("%lu %hhx %zd", {1, 2, 3}), "1 2 3");
}

TEST(LogFormat, ReadsTexts) {
  EXPECT_EQ(line_of("%s", {0x100}), "name");
  EXPECT_EQ(line_of("[%-6s] [%.2s]", {0x100, 0x100}), "[name  ] [na]");
  EXPECT_EQ(line_of("[%s]", {0x200}), "[]");
}

TEST(LogFormat, MarksWhatCannotBeFilledIn) {
  EXPECT_EQ(line_of("%u %u", {1}), "1 %!");
  EXPECT_EQ(line_of("%f", {1}), "%!");
  EXPECT_EQ(line_of("%*d", {1, 2}), "%!d");
  EXPECT_EQ(line_of("%n", {1}), "%!");
  EXPECT_EQ(line_of("%", {1}), "%!");
  EXPECT_EQ(line_of("%99999u", {1}), "%!");
  EXPECT_EQ(line_of("%0", {1}), "%!");
  EXPECT_EQ(line_of("%.999u|", {1}).size(), 256U);  // of one conversion no more than 255
}

TEST(LogFormat, IsNothingThatATerminalObeys) {
  EXPECT_EQ(spec::printable_text("a\tb\x1b[2J\n\x7f"), "a b\\x1b[2J\\x0a\\x7f");
}

}  // namespace
}  // namespace tpu::model
