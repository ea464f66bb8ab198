// What is said of a file of a run that could not be written.
#pragma once

#include <cerrno>
#include <string>

namespace tpu::model {

// `kind`: of the file, "trace". `error`: as in errno, of the first write that failed.
inline std::string write_failure(const char* kind, const std::string& path, int error) {
  return std::string(kind) + ": writing " + path +
         (error == EPIPE ? " failed (its reader has gone)" : " failed (is the disk full?)") +
         "; the file is incomplete";
}

}  // namespace tpu::model
