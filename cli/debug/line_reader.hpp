// Lines that somebody types: edited, with history and completion by libedit.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tpu::driver {

class LineReader {
 public:
  /// What could stand where the last word of a line is.
  using Complete = std::function<std::vector<std::string>(const std::string& line)>;

  /// One at a time in a process.
  explicit LineReader(Complete complete);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line; nothing at the end.
  std::optional<std::string> read(const char* prompt);
};

}  // namespace tpu::driver
