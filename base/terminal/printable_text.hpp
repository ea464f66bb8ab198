// Text of others on a terminal: names in files, messages of other processes, what firmware prints.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace tpu::spec {

// A terminal must not obey such text: control characters become "\x1b", those of UTF-8 (U+0080 to
// U+009F) too. A tabulator becomes a blank.
std::string printable_text(std::string_view text);

// As printable_text(), but lines stay lines.
std::string printable_lines(std::string_view text);

// As fmt::print(), and printable. Commands print with it whatever a file or a user has a part in.
template <typename... T>
void print(std::FILE* to, fmt::format_string<T...> format, T&&... arguments) {
  fmt::print(to, "{}", printable_lines(fmt::format(format, std::forward<T>(arguments)...)));
}

template <typename... T>
void print(fmt::format_string<T...> format, T&&... arguments) {
  spec::print(stdout, format, std::forward<T>(arguments)...);
}

template <typename... T>
void print(std::ostream& to, fmt::format_string<T...> format, T&&... arguments) {
  to << printable_lines(fmt::format(format, std::forward<T>(arguments)...));
}

}  // namespace tpu::spec
