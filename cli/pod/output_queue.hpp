// Text on its way to a file of this process: nobody has to wait for one that does not take it, such
// as a pipe to a pager.
#pragma once

#include <string>
#include <string_view>

namespace tpu::driver {

class OutputQueue {
 public:
  explicit OutputQueue(int file) : file_(file) {}

  int file() const { return file_; }
  size_t size() const { return text_.size() - written_; }
  bool is_empty() const { return size() == 0; }

  /// Dropped once the file cannot be written.
  void put(std::string_view text);

  /// What the file takes without a wait. Zero, or errno of the first write that fails.
  int write();

 private:
  int file_;
  std::string text_;
  size_t written_ = 0;  // of the text
  bool failed_ = false;
};

}  // namespace tpu::driver
