// A bar that cannot be written (a full disk, a reader that went away) does not end a command.
#include "terminal/text_bar.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "terminal/printable_text.hpp"

namespace tpu::spec {
namespace {

constexpr size_t kLongBar = 30;
constexpr size_t kShortBar = 12;

size_t columns_of(std::FILE* terminal) {
  constexpr size_t kUsual = 80;
  winsize size{};
  return ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

TextBar::TextBar(std::string what, double quiet_seconds, std::FILE* to)
    : what_(printable_text(what)),
      quiet_seconds_(quiet_seconds),
      to_(to),
      terminal_(isatty(fileno(to)) != 0),
      start_(Clock::now()) {}

TextBar::~TextBar() {
  if (shown_) {
    put("\r\x1b[K");
  }
}

bool TextBar::due() const {
  constexpr auto kBetween = std::chrono::milliseconds(100);
  return terminal_ && (shown_ ? Clock::now() - last_ >= kBetween : seconds() >= quiet_seconds_);
}

// A line that is longer than the terminal could not be written over.
void TextBar::show(double part, const std::string& text, const std::vector<std::string>& more) {
  if (!due() && !(shown_ && part >= 1)) {
    return;
  }
  const size_t columns = columns_of(to_);
  std::string words = printable_text(text);
  for (const std::string& each : more) {
    const std::string next = each.empty() ? words : words + "  " + printable_text(each);
    words = what_.size() + kShortBar + next.size() < columns ? next : words;
  }
  constexpr size_t kAround = 5;  // blanks and brackets, and the last column stays free
  const size_t taken = what_.size() + words.size() + kAround;
  const size_t width = std::min(kLongBar, columns - std::min(columns, taken));
  const double share = std::clamp(part, 0.0, 1.0);
  const auto full = static_cast<size_t>(static_cast<double>(width) * share);
  std::string line = fmt::format("{}{}[{:#<{}}{:.<{}}] {}", what_, what_.empty() ? "" : " ", "",
                                 full, "", width - full, words);
  line.resize(std::min(line.size(), columns - 1));
  put("\r" + line + "\x1b[K");
  shown_ = true;
  last_ = Clock::now();
}

void TextBar::share(double part, const std::string& more) {
  show(part, fmt::format("{:.0f} %", 100 * part),
       {part > 0 ? duration_text(seconds() * (1 - part) / part) + " left" : "", more});
}

void TextBar::count(uint64_t done, uint64_t all, const std::string& unit) {
  if (all == 0) {
    return;
  }
  const double part = static_cast<double>(done) / static_cast<double>(all);
  const double rate = static_cast<double>(done) / std::max(1e-9, seconds());
  share(part, fmt::format("{:.{}f} {}/s", rate, rate < 10 ? 1 : 0, unit));
}

void TextBar::print(const std::string& line) {
  put((shown_ ? "\r\x1b[K" : "") + line + "\n");
  shown_ = false;
}

double TextBar::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void TextBar::put(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), to_);
  std::fflush(to_);
}

}  // namespace tpu::spec
