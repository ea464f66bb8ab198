#include "compile_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

namespace tpu::client {
namespace {

constexpr std::chrono::milliseconds kPause{20};

// False: the file was removed by who had the lock, and another one may be there.
bool is_at(int file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

CompileLock::CompileLock(const std::string& folder, const std::string& key,
                         std::chrono::milliseconds limit)
    : path_(folder.empty() ? "" : folder + "/" + key + ".lock") {
  if (path_.empty()) {
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!try_lock() && std::chrono::steady_clock::now() < until) {
    has_waited_ = true;
    std::this_thread::sleep_for(kPause);
  }
}

// True: it is locked, or cannot be.
bool CompileLock::try_lock() {
  const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                          S_IRUSR | S_IWUSR);
  if (file < 0) {
    return true;
  }
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
    if (is_at(file, path_)) {
      file_ = file;
      return true;
    }
  } else if (errno != EWOULDBLOCK && errno != EINTR) {
    ::close(file);
    return true;
  }
  ::close(file);
  return false;
}

// The lock goes in children made by fork() too, which have the file.
CompileLock::~CompileLock() {
  if (file_ >= 0) {
    ::unlink(path_.c_str());
    ::flock(file_, LOCK_UN);
    ::close(file_);
  }
}

}  // namespace tpu::client
