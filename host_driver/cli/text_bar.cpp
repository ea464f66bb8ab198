#include "cli/text_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "readers/view.hpp"

namespace tpu::driver {

TextBar::TextBar(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(isatty(fileno(stderr)) != 0),
      start_(Clock::now()) {}

TextBar::~TextBar() {
  if (shown_) {
    std::fputc('\n', stderr);
  }
}

void TextBar::show(uint64_t done, uint64_t all) {
  constexpr auto kBetween = std::chrono::milliseconds(100);
  constexpr size_t kCells = 30;
  const Clock::time_point now = Clock::now();
  if (!terminal_ || all == 0 || (shown_ && done != all && now - last_ < kBetween)) {
    return;
  }
  shown_ = true;
  last_ = now;
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - start_).count());
  const double part = static_cast<double>(done) / static_cast<double>(all);
  const double rate = static_cast<double>(done) / seconds;
  const auto full = static_cast<size_t>(part * static_cast<double>(kCells));
  const double left = done == 0 ? 0.0 : static_cast<double>(all - done) / rate;
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %  {:.0f} {}/s  {} left \x1b[K", what_, "",
             full, "", kCells - full, 100 * part, rate, unit_, monitor::duration_text(left));
  std::fflush(stderr);
}

}  // namespace tpu::driver
