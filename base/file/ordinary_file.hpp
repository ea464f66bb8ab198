// A check for files that the FST library writes: it removes what is there before it makes its own,
// a device too where the user may do that.
#pragma once

#include <sys/stat.h>

#include <stdexcept>
#include <string>

namespace tpu::model {

// Throws std::runtime_error when there is something else than an ordinary file.
inline void need_ordinary_file(const std::string& path) {
  struct stat kind {};
  if (::stat(path.c_str(), &kind) == 0 && !S_ISREG(kind.st_mode)) {
    throw std::runtime_error(path + " is a device or a pipe; name a file");
  }
}

}  // namespace tpu::model
