// Keeps two runs from writing one file: an advisory lock of the system on the file itself, held as
// long as the object lives. Devices and pipes are not locked.
#pragma once

#include <cstdio>
#include <string>

namespace tpu::model {

class FileLock {
 public:
  // Creates the file if there is none; its content stays. Throws std::runtime_error with the reason
  // when it cannot be opened for writing or another run holds it.
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // The file from its begin on, emptied: the one that is locked, whatever its name means by now. A
  // device or a pipe as `path` opens it. Null with errno where that fails.
  std::FILE* open_stream() const;

 private:
  const std::string path_;
  int file_;
  bool regular_ = false;
};

}  // namespace tpu::model
