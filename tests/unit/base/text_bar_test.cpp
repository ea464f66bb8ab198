// The bar of long commands, on a pseudo terminal and elsewhere.
#include "terminal/text_bar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

namespace tpu::spec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTakenAway = "\r\x1b[K";

// A stream that is a terminal, and what was written to it.
class Terminal {
 public:
  explicit Terminal(int columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(columns);
    int follower = -1;
    EXPECT_EQ(openpty(&leader_, &follower, nullptr, nullptr, &size), 0);
    stream_ = fdopen(follower, "w");
  }
  ~Terminal() {
    std::fclose(stream_);
    close(leader_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* stream() const { return stream_; }
  // Since the last call. What was written arrives some time later: a mark behind it is waited for.
  std::string shown() const {
    constexpr char kMark = '\x01';
    std::fputc(kMark, stream_);
    std::fflush(stream_);
    std::string text;
    while (text.empty() || text.back() != kMark) {
      std::array<char, 4096> part{};
      const ssize_t n = read(leader_, part.data(), part.size());
      if (n <= 0) {
        ADD_FAILURE() << "the terminal is gone";
        return text;
      }
      text.append(part.data(), static_cast<size_t>(n));
    }
    text.pop_back();
    return text;
  }

 private:
  int leader_ = -1;
  std::FILE* stream_ = nullptr;
};

TEST(TextBar, IsOneLineThatIsWrittenOverAndTakenAway) {
  const Terminal terminal(100);
  {
    TextBar bar("convert", 0, terminal.stream());
    bar.count(5, 20, "examples");
    EXPECT_THAT(
        terminal.shown(),
        MatchesRegex("\rconvert \\[#{7}\\.{23}\\] 25 %  [0-9]+ s left  .* examples/s\x1b\\[K"));
    bar.count(20, 20, "examples");
    EXPECT_THAT(terminal.shown(),
                MatchesRegex("\rconvert \\[#{30}\\] 100 %  0 s left  .*\x1b\\[K"));
  }
  EXPECT_EQ(terminal.shown(), kTakenAway);
}

TEST(TextBar, IsShownTenTimesASecondAtMostAndAtTheEnd) {
  const Terminal terminal(100);
  TextBar bar("run", 0, terminal.stream());
  bar.show(0.1, "first");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) {
    bar.show(0.2, "soon");
  }
  if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(100)) {
    EXPECT_THAT(terminal.shown(), AllOf(HasSubstr("first"), Not(HasSubstr("soon"))));
  }
  bar.show(1, "last");
  EXPECT_THAT(terminal.shown(), HasSubstr("last"));
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  EXPECT_TRUE(bar.due());
}

TEST(TextBar, TellsTheTimeThatIsLeftAtTheSpeedSoFar) {
  const Terminal terminal(100);
  TextBar bar("compile", 0, terminal.stream());
  bar.share(0, "import");
  EXPECT_THAT(terminal.shown(), AllOf(HasSubstr("] 0 %  import"), Not(HasSubstr("left"))));
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  // A thousandth took 0.11 s and more, so that 109 s and more are left.
  bar.share(0.001, "kernels");
  EXPECT_THAT(terminal.shown(),
              MatchesRegex(".*\\] 0 %  [0-9]+ (min|h) [0-9]+ (s|min) left  kernels.*"));
}

TEST(TextBar, FitsIntoTheTerminal) {
  for (const int columns : {2, 10, 20, 30, 40, 79}) {
    const Terminal terminal(columns);
    TextBar bar("compile a_program.mlirbc", 0, terminal.stream());
    bar.show(0.5, "50 %", {"1 min 40 s left", std::string(40, 'x')});
    const std::string shown = terminal.shown();
    ASSERT_THAT(shown, StartsWith("\r"));
    EXPECT_LT(shown.find('\x1b') - 1, static_cast<size_t>(columns)) << shown;
  }
}

TEST(TextBar, LinesThatStayTakeItsPlace) {
  const Terminal terminal(60);
  TextBar bar("", 0, terminal.stream());
  bar.show(0.5, "3/6");
  bar.print("epoch 1");
  EXPECT_THAT(terminal.shown(), AllOf(StartsWith("\r["), HasSubstr("3/6\x1b[K\r\x1b[Kepoch 1")));
  bar.show(0.6, "4/6");
  EXPECT_THAT(terminal.shown(), HasSubstr("4/6")) << "the line is not written over";
}

TEST(TextBar, OfAShortCommandIsNotSeen) {
  const Terminal terminal(80);
  {
    TextBar bar("compile", 3600, terminal.stream());
    bar.share(0.5, "kernels");
    bar.share(1, "estimate");
  }
  EXPECT_EQ(terminal.shown(), "");
}

TEST(TextBar, ShowsNothingWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    TextBar bar("convert", 0, file);
    EXPECT_FALSE(bar.due());
    bar.count(1, 2, "examples");
    bar.count(2, 2, "examples");
  }
  EXPECT_EQ(std::ftell(file), 0);
  {
    TextBar bar("", 0, file);
    bar.print("epoch 1");
  }
  EXPECT_EQ(std::ftell(file), 8);
  std::fclose(file);
}

TEST(DurationText, HasTwoUnitsAtMost) {
  EXPECT_EQ(duration_text(-1), "0 s");
  EXPECT_EQ(duration_text(59.9), "59 s");
  EXPECT_EQ(duration_text(584), "9 min 44 s");
  EXPECT_EQ(duration_text(3600), "1 h 00 min");
}

}  // namespace
}  // namespace tpu::spec
