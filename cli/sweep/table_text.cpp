// Text of tables.
#include "cli/sweep/table_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tpu::driver {
namespace {

constexpr size_t kErrorLength = 100;  // in a table

}  // namespace

std::string brief(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.size() <= kErrorLength ? line : line.substr(0, kErrorLength) + " ...";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

std::string aligned(const std::vector<std::vector<std::string>>& lines, size_t numbers_from) {
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      out += i == 0 || i >= numbers_from ? fmt::format("{:>{}}  ", line[i], widths[i])
                                         : fmt::format("{:<{}}  ", line[i], widths[i]);
    }
    out += line.back();
    text += out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace tpu::driver
