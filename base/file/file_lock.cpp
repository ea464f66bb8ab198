// Locks by flock(2): they belong to the open file, so a second one in this process is refused too.
#include "file/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tpu::model {

FileLock::FileLock(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644)) {
  if (file_ < 0 && errno == ENXIO) {
    return;  // a pipe that nobody reads yet
  }
  if (file_ < 0) {
    throw std::runtime_error(path + " cannot be written: " + std::strerror(errno));
  }
  struct stat kind {};
  regular_ = ::fstat(file_, &kind) == 0 && S_ISREG(kind.st_mode);
  if (regular_ && ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    throw std::runtime_error(path +
                             " is already open for writing, in another run or for another option "
                             "of this run; use a different file for each");
  }
}

std::FILE* FileLock::open_stream() const {
  if (!regular_) {
    return std::fopen(path_.c_str(), "we");
  }
  const int file = ::fcntl(file_, F_DUPFD_CLOEXEC, 0);
  if (file < 0) {
    return nullptr;
  }
  std::FILE* stream = ::ftruncate(file, 0) == 0 ? ::fdopen(file, "w") : nullptr;
  if (stream == nullptr) {
    const int error = errno;
    ::close(file);
    errno = error;
  }
  return stream;
}

FileLock::~FileLock() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

}  // namespace tpu::model
