// Text of others as a terminal may see it.
#include "terminal/printable_text.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace tpu::spec {
namespace {

TEST(PrintableText, ShowsControlCharactersAsNumbers) {
  EXPECT_EQ(printable_text("a\tb\x1b[2J\n\x7f"), "a b\\x1b[2J\\x0a\\x7f");
}

TEST(PrintableText, KeepsLinesWhereTheyAreWanted) {
  EXPECT_EQ(printable_lines("a\nb\r\x1b]0;title\x07\n"), "a\nb\\x0d\\x1b]0;title\\x07\n");
}

// U+009B alone begins a sequence on some terminals, as ESC [ does.
TEST(PrintableText, ShowsControlCharactersOfUtf8) {
  EXPECT_EQ(printable_text("\xc2\x9b"
                           "2J"),
            "\\x9b2J");
}

TEST(PrintableText, LeavesOtherUtf8Alone) {
  for (const char* text :
       {"\xc3\xa9", "\xe2\x82\xac", "\xc2\xb5s", "\xf0\x9f\x92\xbe", "\xe2\x9b\x84"}) {
    EXPECT_EQ(printable_text(text), text);
  }
}

TEST(PrintableText, PrintsArgumentsSo) {
  std::ostringstream out;
  print(out, "{}: {}\n", "na\x1bme", 3);
  EXPECT_EQ(out.str(), "na\\x1bme: 3\n");
}

}  // namespace
}  // namespace tpu::spec
