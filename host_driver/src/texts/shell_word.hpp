// A word of a command line that people paste.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace tpu::driver {

/// As a shell reads it.
inline std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "_./=,:+-";
  const bool plain = std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !text.empty()) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace tpu::driver
