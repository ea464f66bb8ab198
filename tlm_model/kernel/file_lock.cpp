// Locks by flock(2): they belong to the open file, so a second one in this process is refused too.
#include "kernel/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace tpu::model {

FileLock::FileLock(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644)) {
  if (file_ < 0 && errno == ENXIO) {
    return;  // a pipe that nobody reads yet
  }
  if (file_ < 0) {
    throw std::runtime_error(path + " cannot be written: " + std::strerror(errno));
  }
  struct stat kind {};
  const bool regular = ::fstat(file_, &kind) == 0 && S_ISREG(kind.st_mode);
  if (regular && ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    throw std::runtime_error(path +
                             " is being written by another run, or for another option of this "
                             "one; give each its own file");
  }
}

FileLock::~FileLock() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

}  // namespace tpu::model
