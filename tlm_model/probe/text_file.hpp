// A text file that a sink writes: one run at a time, with errors told at its end. "-" is standard
// error.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "file/file_lock.hpp"

namespace tpu::model {

class TextFile {
 public:
  // `what` names it in errors, "trace". Throws std::runtime_error when the file cannot be created,
  // or another run writes it.
  TextFile(const std::string& path, const std::string& what);
  ~TextFile() { finish(); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  void write(const std::string& text);
  // What has been written so far is there when each line ends.
  void flush_lines() { std::setvbuf(file_, nullptr, _IOLBF, BUFSIZ); }

  // Closes the file. Empty, or what went wrong (also during the writes before).
  std::string finish();

 private:
  const std::string path_;
  const std::string what_;
  std::optional<FileLock> lock_;
  std::FILE* file_;
  int write_error_ = 0;  // the first, as in errno
  std::string error_;
};

}  // namespace tpu::model
